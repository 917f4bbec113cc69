"""Flags of InferenceX's servers, which its rows leave out, and the slow start of benchmark runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from hwmodels.loading import Strict, build, read_mapping
from hwmodels.quantities import Positive
from simulator.serving.question.deployment import Pool

FILE = Path(__file__).with_name("inferencex.yaml")


class Flags(Strict):
    """Flags of a server; None and 0 stand for the engine's default."""

    token_budget: int | None = None
    budget_prompts: int = 0
    """Token budget in prompts of the nominal length, where the scripts size it so; 0 otherwise."""
    memory_share: Positive | None = None
    kv: Literal["fp8"] | None = None
    poll_steps: int = 0
    """Decode steps between two looks at the queue of new requests."""
    poll_steps_from_16: int = 0
    """The same with 16 clients or more."""

    def wait_steps(self, clients: float) -> int:
        """Decode steps between two looks at the queue at a number of clients."""
        return self.poll_steps_from_16 if clients >= 16 else self.poll_steps


class ServerRule(Flags):
    """Flags of some servers."""

    engine: str
    version: str = ""
    """Start of the preset's version."""
    gpu: str = ""
    """Start of the device's name."""
    weights: str = ""
    source: str


class Speculating(Strict):
    """A configuration that ran with prediction heads, though its rows do not say so."""

    engine: str
    version: str
    gpu: str
    weights: str
    model: str
    tensor: int
    expert: int
    drafts: int
    source: str


class Start(Strict):
    """How long the first burst of a run waits for kernels to be compiled or tuned."""

    engine: str
    version: str = ""
    gpu: str = ""
    weights: str = ""
    start_s: Positive
    source: str


class _Rules(Strict):
    rules: list[ServerRule] = Field(strict=False)
    speculating: list[Speculating] = Field(strict=False)
    starts: list[Start] = Field(strict=False)


DEFAULTS = Flags()


@cache
def _rules() -> _Rules:
    return build(_Rules, read_mapping(FILE), str(FILE))


def _fits(rule: ServerRule | Start | Speculating, engine: str, version: str, gpu: str, weights: str) -> bool:
    same = rule.engine == engine and version.startswith(rule.version)
    return same and gpu.startswith(rule.gpu) and rule.weights in ("", weights)


@cache
def start_of(engine: str, gpu: str, weights: str) -> float:
    """Seconds that the requests of a run's first burst wait more than those of later bursts."""
    return next((rule.start_s for rule in _rules().starts if _fits(rule, engine, "", gpu, weights)), 0.0)


@cache
def flags_of(engine: str, version: str, gpu: str, weights: str) -> Flags:
    """The flags of an engine family at a preset's version on a device, for weights in a format."""
    for rule in _rules().rules:
        if _fits(rule, engine, version, gpu, weights):
            return rule
    return DEFAULTS


def drafts_of(engine: str, version: str, gpu: str, pool: Pool, model: str) -> int:
    """Tokens that prediction heads draft in a configuration whose rows do not state them; 0 without heads."""
    for rule in _rules().speculating:
        degrees = pool.data == pool.pipeline == 1 and (pool.tensor, pool.expert) == (rule.tensor, rule.expert)
        if degrees and rule.model == model and _fits(rule, engine, version, gpu, pool.stored):
            return rule.drafts
    return 0
