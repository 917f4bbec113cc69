"""Arguments of each question, told once: keywords of the Python API, named as the command line's flags.

An argument that is None or left out changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from core.errors import UnknownNameError
from meshwright.questions.references import ClusterReference, FrameworkReference, ModelReference, Reference


class TrainingArguments(TypedDict, total=False):
    """What every question about training states.

    Keys:
        model, framework: catalogue name, path, mapping or object.
        seq_len: tokens in a sequence (8192, "8k"); by default the longest that the model was built for.
        global_batch, batch_tokens: sequences in an optimizer step, or tokens ("4M").
        precision: fp32, tf32, fp16, bf16, fp8, mxfp8 or nvfp4.
        adapter: rank of adapters beside frozen weights (16, or "16:nf4" with the format of those), or
            a mapping of ``workload.adapter``.
        source_len: tokens that an encoder reads of a sequence (T5, BART); ``seq_len`` is the decoder's.
        images: images in every sequence, beside a frozen vision tower (``"2x1280x720"``).
        price: dollars an hour and device, instead of the list price.
        fix: fields of the plan and their values; a search holds them.
        allow: rules of the release that plans may break (docs/search.md); the answer says so.
    """

    model: ModelReference | None
    seq_len: int | str | None
    global_batch: int | str | None
    batch_tokens: int | str | None
    precision: str | None
    adapter: int | str | Mapping[str, Any] | None
    source_len: int | str | None
    images: str | Sequence[Any] | Mapping[str, Any] | None
    framework: FrameworkReference | None
    price: float | None
    fix: Mapping[str, Any] | None
    allow: Sequence[str] | None


class StepArguments(TrainingArguments, total=False):
    """A question about one size of one cluster.

    Keys:
        cluster: catalogue name, path, mapping or object.
        gpus: devices of the job.
        site: file or mapping of what ``learn`` found in measured steps.
    """

    cluster: ClusterReference | None
    gpus: int | str | None
    site: Reference | None


class SizeArguments(TrainingArguments, total=False):
    """A search over plans.

    Keys:
        limit: highest values of plan fields.
        objective: time, cost or energy.
        headroom: memory to leave free, as 0.1, "10%" or "8GiB"; by default from the memory model's error.
    """

    limit: Mapping[str, Any] | None
    objective: str | None
    headroom: float | str | None


class SearchArguments(SizeArguments, StepArguments, total=False):
    """A search over plans of one size.

    Keys:
        recipe: catalogue name, path or mapping of a partial plan, which the search holds.
        top: number of plans to return.
    """

    recipe: Reference | None
    top: int | None


class LoadArguments(TypedDict, total=False):
    """What every question about serving states.

    Keys:
        model: catalogue name, path, mapping or object.
        isl, osl: prompt and output tokens of a request (2048, "2k").
        engine: preset by name.
        fix, limit: fields of a replica and their (highest) values: tensor, data, pipeline, expert, replicas,
            weights, kv, speculation, token_budget, max_sequences.
    """

    model: ModelReference | None
    isl: int | str | None
    osl: int | str | None
    engine: str | None
    fix: Mapping[str, Any] | None
    limit: Mapping[str, Any] | None


class ReplicaArguments(LoadArguments, total=False):
    """A question about replicas on one cluster.

    Keys:
        cluster: catalogue name, path, mapping or object.
        gpus: devices to use at most.
    """

    cluster: ClusterReference | None
    gpus: int | str | None


class TargetArguments(LoadArguments, total=False):
    """Latency targets.

    Keys:
        ttft, tpot: targets, s, or text (``"500ms"``, ``"p99=2s"``).
        share: of the requests that must meet both.
    """

    ttft: float | str | None
    tpot: float | str | None
    share: float | None


class FrontArguments(TargetArguments, ReplicaArguments, total=False):
    """A front of replicas; targets are drawn beside it.

    Keys:
        use: chat, code, agents, batch or embeddings: lengths and targets where none are stated.
    """

    use: str | None


class DayArguments(TargetArguments, ReplicaArguments, total=False):
    """Replicas that meet targets over a day."""


class MixArguments(TargetArguments, total=False):
    """A load to be carried within targets.

    Keys:
        rate: requests a second.
        watts: power of all devices at most, W.
    """

    rate: float | None
    watts: float | None


class DeployArguments(MixArguments, ReplicaArguments, total=False):
    """A search over deployments.

    Keys:
        cluster: as elsewhere; or GPU types to choose from as ``"dgx-h100=8,dgx-a100-80gb=16@1.2"``, each with
            the devices available and $ an hour and device. Prompts and outputs may then run on different
            types.
        objective: goodput, cost, energy or latency; by default cost where ``rate`` or ``concurrency`` is
            stated, else goodput.
        prefix: tokens of ``isl`` that all prompts share, or their share of it (``0.75``).
        images: images in every prompt beside ``isl`` (``"2x1280x720"``, ``"1280x720@16"``: a video).
        requests: file of requests (Azure, BurstGPT, Mooncake, benchmark clients, ShareGPT, plain): lengths
            and, without ``rate``, arrivals.
        use: chat, code, agents, batch or embeddings: lengths and targets where none are stated.
        concurrency: requests in flight at any time, instead of ``rate``, on one pool.
        site: file or mapping of what ``learn`` found on a measured server.
        pools: roles of pools to try beside those that serve: ``"attention"`` (attention-FFN disaggregation;
            ``attention_ratio`` and ``micro_batches`` of ``fix`` hold its fields).
        deadline: seconds of an agent's whole program, tools counted; of ``use="agents"`` and programs.
    """

    deadline: float | None
    pools: str | Sequence[str] | None
    objective: str | None
    prefix: str | float | None
    images: str | Sequence[Any] | Mapping[str, Any] | None
    requests: str | None
    use: str | None
    concurrency: int | str | None
    site: Reference | None


class PostTrainingArguments(TypedDict, total=False):
    """A search over plans of post-training.

    Keys:
        model: the policy: catalogue name, path, mapping or object.
        cluster: as elsewhere.
        gpus: devices of the job.
        framework: system of post-training.
        isl, osl: prompt tokens, and the median of drawn answers.
        staleness: steps by which the weights of an answer may be older than the newest.
        top: number of plans to return.
    """

    model: ModelReference | None
    cluster: ClusterReference | None
    gpus: int | str | None
    framework: Reference | None
    isl: int | str | None
    osl: int | str | None
    staleness: float | None
    top: int | None


def check_names(arguments: Mapping[str, Any], kind: type, more: Iterable[str] = ()) -> dict[str, Any]:
    """The arguments of a question by name, None where left out.

    Args:
        arguments: as the caller wrote them.
        kind: one of the classes above.
        more: names that the function reads beside them, for the message.

    Raises:
        UnknownNameError: a name that the question has not; with the nearest.
    """
    names = tuple(kind.__annotations__)
    for name in arguments:
        if name not in names:
            raise UnknownNameError("argument", name, (*names, *more), "arguments")
    return {name: arguments.get(name) for name in names}
