"""The five questions that are asked over HTTP and by assistants, as strict schemas.

A request names what the catalogue has, or writes a mapping out; no name of a file is read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from core.errors import InputError, UnknownNameError, shown
from core.loading import Catalogue, Strict, looks_like_path
from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models import models

Named = str | dict[str, Any]
Number = int | str
CATALOGUES: Mapping[str, Catalogue[Any]] = {"model": models, "cluster": clusters, "framework": frameworks}
MOST_PLANS = 20
MOST_DEPTH = 40
"""Levels of mappings and lists inside each other."""
FREE_TEXT = ("title", "name", "source", "why", "description")
"""Keys whose text is never a reference."""


class ServiceQuestion(Strict):
    """A question; its class names it."""

    question: ClassVar[str] = ""
    about: ClassVar[str] = ""


class TrainQuestion(ServiceQuestion):
    """Which layout trains a model fastest or cheapest, and does it fit?"""

    question: ClassVar[str] = "train"
    about: ClassVar[str] = (
        "Plans of a training step: layout, step time, memory, money, with bands and evidence."
    )

    model: Named = Field(description="name of the catalogue, or a config.json or model as a mapping")
    cluster: Named = Field(description="name of the catalogue, or a mapping")
    gpus: int = Field(ge=1, le=2**20, description="devices of the job")
    seq_len: Number | None = Field(None, description="tokens in a sequence: 8192, 8k")
    global_batch: Number | None = Field(None, description="sequences in an optimizer step")
    batch_tokens: Number | None = Field(None, description="tokens in an optimizer step: 4M")
    precision: str | None = Field(None, description="bf16, fp8, mxfp8, nvfp4, ...")
    framework: str | None = Field(None, description="release of a training framework")
    adapter: Number | None = Field(None, description="rank of adapters: 16, 16:nf4")
    source_len: Number | None = Field(None, description="tokens that an encoder reads of a sequence")
    images: str | None = Field(None, description="images in every sequence: 2x1280x720")
    objective: str | None = Field(None, description="time, cost or energy")
    fix: dict[str, Any] | None = Field(None, description="fields of the plan: tensor=8, zero=1")
    limit: dict[str, Any] | None = Field(None, description="their highest values: pipeline=4")
    top: int = Field(5, ge=1, le=MOST_PLANS, description="plans to return")


class ServeQuestion(ServiceQuestion):
    """Which deployment serves a load within latency targets?"""

    question: ClassVar[str] = "serve"
    about: ClassVar[str] = "Serving deployments within latency targets: replicas, goodput, latencies, money."

    model: Named = Field(description="name of the catalogue, or a config.json or model as a mapping")
    cluster: Named = Field(
        description="name of the catalogue, a mapping, or types as dgx-h100=8,dgx-a100-80gb=16"
    )
    gpus: int | None = Field(None, ge=1, le=2**16, description="devices to use at most")
    isl: Number | None = Field(None, description="prompt tokens of a request")
    osl: Number | None = Field(None, description="output tokens of a request")
    rate: float | int | None = Field(None, description="requests a second")
    ttft: Number | float | None = Field(None, description="target of the time to first token: 0.5, 500ms")
    tpot: Number | float | None = Field(None, description="target of the time per output token: 0.03, 30ms")
    use: str | None = Field(None, description="chat, code, agents, batch or embeddings: lengths and targets")
    engine: str | None = Field(None, description="preset of an engine release")
    objective: str | None = Field(None, description="goodput, cost, energy or latency")
    concurrency: Number | None = Field(None, description="requests in flight instead of a rate")
    prefix: Number | float | None = Field(None, description="tokens, or share, that all prompts share")
    images: str | None = Field(None, description="images in every prompt: 2x1280x720, 1280x720@16")
    together: bool = Field(False, description="no separate pools for prompts and outputs")
    fix: dict[str, Any] | None = Field(None, description="fields of a replica: tensor=2, weights=fp8")
    limit: dict[str, Any] | None = Field(None, description="their highest values: tensor=4")
    top: int = Field(5, ge=1, le=MOST_PLANS, description="deployments to return")


class SizeQuestion(ServiceQuestion):
    """How many GPUs for a deadline or a budget?"""

    question: ClassVar[str] = "size"
    about: ClassVar[str] = "Days, dollars and energy of a training run over numbers of GPUs and clusters."

    model: Named = Field(description="name of the catalogue, or a config.json or model as a mapping")
    clusters: str | list[str] = Field(description="names of the catalogue: dgx-h100,dgx-b200")
    gpus: str = Field(description="range of devices: 64..1024")
    tokens: Number | float = Field(description="tokens to train on: 15T")
    epochs: float | int = Field(1, gt=0, le=10_000, description="passes over these tokens")
    seq_len: Number | None = Field(None, description="tokens in a sequence: 8192, 8k")
    global_batch: Number | None = Field(None, description="sequences in an optimizer step")
    batch_tokens: Number | None = Field(None, description="tokens in an optimizer step: 4M")
    precision: str | None = Field(None, description="bf16, fp8, mxfp8, nvfp4, ...")
    days: float | int | None = Field(None, description="deadline")
    budget: Number | float | None = Field(None, description="dollars: 2M")


class SimulateQuestion(ServiceQuestion):
    """What happens under one given plan, run or deployment?"""

    question: ClassVar[str] = "simulate"
    about: ClassVar[str] = (
        "A scenario of docs/scenarios.md: a training step, a run of weeks, or requests of a server."
    )

    scenario: Named = Field(description="a shipped scenario's name, or a scenario as YAML or as a mapping")


class RlQuestion(ServiceQuestion):
    """How are devices of post-training split, and how long is a step?"""

    question: ClassVar[str] = "rl"
    about: ClassVar[str] = (
        "Plans of GRPO with the batch of the shipped scenario rl-qwen3-30b: layouts of trainer and rollouts, "
        "step, answers an hour. `simulate` takes a scenario with another algorithm or batch."
    )

    model: Named = Field(description="name of the catalogue, or a config.json or model as a mapping")
    cluster: Named = Field(description="name of the catalogue, or a mapping")
    gpus: int = Field(ge=1, le=2**14, description="devices of the job")
    isl: int | None = Field(None, ge=1, le=2**20, description="prompt tokens")
    osl: int | None = Field(None, ge=1, le=2**20, description="median of the answers' tokens")
    staleness: float | int | None = Field(None, description="steps by which an answer's weights may be old")
    top: int = Field(5, ge=1, le=MOST_PLANS, description="plans to return")


KINDS = (TrainQuestion, ServeQuestion, SizeQuestion, SimulateQuestion, RlQuestion)
QUESTIONS: Mapping[str, type[ServiceQuestion]] = {kind.question: kind for kind in KINDS}


def check_references(question: ServiceQuestion) -> None:
    """Refuse names that the catalogue lacks, and names of files.

    Raises:
        InputError: a file.
        UnknownNameError: a name, with the nearest.
    """
    for key, value in question:
        _check(value, key, 0)
        named = key in CATALOGUES and isinstance(value, str) and "=" not in value
        if named and CATALOGUES[key].resolve(value) is None:
            raise UnknownNameError(key, value, CATALOGUES[key].names(), key)
        if key == "clusters":
            for name in value.split(",") if isinstance(value, str) else value:
                if clusters.resolve(name.strip()) is None:
                    raise UnknownNameError("cluster", name.strip(), clusters.names(), key)
        if key == "scenario" and isinstance(value, str):
            from meshwright.questions.scenarios import shipped_scenarios

            if value not in shipped_scenarios():
                raise UnknownNameError("scenario", value, shipped_scenarios(), key)


def _check(value: Any, where: str, depth: int) -> None:
    """Refuse names of files anywhere in a value.

    Raises:
        InputError: a file, or too many levels.
    """
    if depth > MOST_DEPTH:
        raise InputError(f"has more than {MOST_DEPTH} levels", where)
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key not in FREE_TEXT or not isinstance(below, str):
                _check(below, f"{where}.{key}", depth + 1)
    elif isinstance(value, list):
        for number, below in enumerate(value):
            _check(below, f"{where}.{number}", depth + 1)
    elif isinstance(value, str) and looks_like_path(value) and not _named(value):
        raise InputError(
            f"requests read no files, found {shown(value)}; name an entry of the catalogue, or write the "
            "mapping out",
            where,
        )


def _named(text: str) -> bool:
    """Whether a text with a slash is a name of the catalogue (meta-llama/Llama-3.1-8B) or of a scenario."""
    from meshwright.questions.scenarios import shipped_scenarios

    return (models.resolve(text) is not None and not Path(text).exists()) or text in shipped_scenarios()
