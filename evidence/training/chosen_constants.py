"""Constants that were chosen on whole steps, each with the value that it has without any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from evidence.training.parts import sources
from hwmodels.collectives.calibration import fabric_calibrations
from hwmodels.generation import generations
from meshwright.validation.cases import TrainingCase
from simulator import slowest_rank
from simulator.training import overlap

Change = Callable[[TrainingCase], TrainingCase]


@dataclass(frozen=True)
class StepConstant:
    """A constant chosen on whole steps.

    Attributes:
        name: quantity, and where it stands.
        value: with its unit.
        sources: sources whose rows it was chosen on.
        rows: the rows, in words.
        without: the case without the constant.
        patched: owner, attribute and value without steps, for constants that no case carries.
    """

    name: str
    value: str
    sources: tuple[str, ...]
    rows: str
    without: Change = lambda case: case
    patched: tuple[Callable[[], Any], str, Any] | None = None

    @contextmanager
    def taken_away(self) -> Iterator[None]:
        """A constant that no case carries, at its value without steps."""
        if self.patched is None:
            yield
            return
        owner, name, value = self.patched[0](), *self.patched[1:]
        old = getattr(owner, name)
        object.__setattr__(owner, name, value)  # calibrations are frozen
        try:
            yield
        finally:
            object.__setattr__(owner, name, old)


def chosen_on(source: str) -> list[StepConstant]:
    """Constants chosen on a source, under any of its names."""
    name = sources().same_as.get(source, source)
    return [constant for constant in CONSTANTS if name in constant.sources]


@contextmanager
def without_constants(source: str) -> Iterator[Change]:
    """All constants chosen on a source at their values without steps; yields the change of a case."""
    entries = chosen_on(source)

    def change(case: TrainingCase) -> TrainingCase:
        for constant in entries:
            case = constant.without(case)
        # A setting keeps what it computed with the constant.
        return replace(case, setting=replace(case.setting))

    with ExitStack() as stack:
        for constant in entries:
            stack.enter_context(constant.taken_away())
        yield change


def _framework(part: str, key: str, old: float, new: float) -> Change:
    """Another value of a framework's key, where it has the constant's."""

    def change(case: TrainingCase) -> TrainingCase:
        release = case.setting.framework
        if getattr(getattr(release, part), key) != old:
            return case
        return replace(case, setting=replace(case.setting, framework=release.changed({part: {key: new}})))

    return change


def _cluster(key: str, old: float, new: float) -> Change:
    """Clusters with another figure of their hosts."""

    def change(case: TrainingCase) -> TrainingCase:
        cluster = case.setting.cluster
        if getattr(cluster, key) != old:
            return case
        even = cluster.model_copy(update={key: new})
        return replace(case, setting=replace(case.setting, cluster=even))

    return change


def _reached(old: float) -> Change:
    """Links whose collectives reach what the constants of switched ones say."""

    def change(case: TrainingCase) -> TrainingCase:
        cluster = case.setting.cluster
        if cluster.levels[0].reached != old:
            return case
        return replace(case, setting=replace(case.setting, cluster=cluster.reaching(1.0)))

    return change


def _load(old: float) -> Change:
    """Balanced experts."""

    def change(case: TrainingCase) -> TrainingCase:
        training = case.setting.training
        if training.expert_load != old:
            return case
        balanced = training.model_copy(update={"expert_load": 1.0})
        return replace(case, setting=replace(case.setting, training=balanced))

    return change


def _fabric(name: str) -> Callable[[], Any]:
    return lambda: fabric_calibrations.get(name)


def _uccl() -> Any:
    dispatchers = fabric_calibrations.get("efa-v2").dispatchers
    return dispatchers["uccl"]


CONSTANTS = (
    StepConstant(
        "launch of a kernel, Megatron Core (frameworks)",
        "45 us",
        ("DGXC", "MB"),
        "two launch-bound steps with experts on H100",
        _framework("host", "seconds_per_kernel", 4.5e-5, 13.5e-6),
    ),
    StepConstant(
        "launch of a kernel, Megatron-DeepSpeed (frameworks)",
        "53 us",
        ("BS",),
        "vTrain's launch-bound steps of 16 and 24 layers; BigScience's agree",
        _framework("host", "seconds_per_kernel", 5.3e-5, 13.5e-6),
    ),
    StepConstant(
        "launches of processes that are not bound, Grace (clusters)",
        "1.5",
        ("MDSV",),
        "factor of torch's launches on Grace over 1.83",
        _cluster("unbound_slowdown", 1.5, 1.0),
    ),
    StepConstant(
        "launches of processes that are not bound, x86 (clusters)",
        "1.2",
        ("MBSK",),
        "three launch-bound steps of Moonlight on 8 H100",
        _cluster("unbound_slowdown", 1.2, 1.0),
    ),
    StepConstant(
        "host of Grace (clusters)",
        "1.83",
        ("MB",),
        "steps of Qwen3-30B on GB200; issue 2053",
        _cluster("host_slowdown", 1.83, 1.0),
    ),
    StepConstant(
        "host of aws-p5 (clusters)",
        "1.8",
        ("AWSEP",),
        "one step of Qwen3-30B",
        _cluster("host_slowdown", 1.8, 1.0),
    ),
    StepConstant(
        "host between two steps, nanotron (frameworks)",
        "40 ms",
        ("NANO",),
        "twelve open steps below 5 s",
        _framework("host", "seconds_per_step", 0.04, 0.0),
    ),
    StepConstant(
        "collectives between four GH200 (clusters)",
        "0.4",
        ("JUPT", "JUPM", "JUPF"),
        "all steps of JUPITER, one vote a source",
        _reached(0.4),
    ),
    StepConstant(
        "start of a UCCL dispatch (efa-v2)",
        "1.2 ms",
        ("AWSEP",),
        "two steps of Qwen3-30B over 16 ranks",
        patched=(_uccl, "start_s", 2.0e-4),
    ),
    *(
        StepConstant(
            f"exchange with experts among three nodes and more ({fabric})",
            "0.41",
            ("AWSEP",),
            "one step of Qwen3-30B over 32 ranks on p5",
            patched=(_fabric(fabric), "exchange_share", 1.0),
        )
        for fabric in ("efa-v2", "efa-v4")
    ),
    StepConstant(
        "products of ROCm 5 (words)",
        "0.8",
        ("AMD2",),
        "five steps of LUMI",
        _framework("kernels", "product_share", 0.8, 1.0),
    ),
    StepConstant(
        "load of routers without balancing (words)",
        "2.3",
        ("PCOM",),
        "published loads, not steps",
        _load(2.3),
    ),
    StepConstant(
        "fetch of a micro batch, Megatron-LM (frameworks)",
        "3.6 ms",
        ("ZB",),
        "profiled passes of Zero Bubble's Table 6",
        _framework("host", "fetch_seconds", 3.6e-3, 0.0),
    ),
    StepConstant(
        "exchange of stages, Megatron-DeepSpeed (frameworks)",
        "0.42 ms",
        ("ZB",),
        "the same",
        _framework("host", "exchange_seconds", 4.2e-4, 0.0),
    ),
    StepConstant(
        "masks on the host, OpenLLM's fork (words)",
        "3 ns",
        ("LUC",),
        "one timed core, no step",
        _framework("host", "mask_seconds", 3.0e-9, 0.0),
    ),
    StepConstant(
        "kernels beside a collective (overlap.py)",
        "0.35",
        ("NEMO",),
        "H100 rows of NeMo; published overlap studies",
        patched=(lambda: overlap, "SLOWDOWN", {"nvidia": 0.12, "amd": 0.12}),
    ),
    StepConstant(
        "jitter of a step (slowest_rank.py)",
        "0.003",
        ("NEMO",),
        "slope of Nemotron 15B over 16 to 2,048 H100",
        patched=(lambda: slowest_rank, "JITTER", 0.0),
    ),
    StepConstant(
        "FlashAttention-1 in Triton, heads of 64 (hwmodels/generations/ampere.yaml)",
        "0.54",
        ("LLMF",),
        "three steps of MPT-350m",
        patched=(
            lambda: generations.get("ampere"),
            "older_attention",
            {**generations.get("ampere").older_attention, "flash-1-triton": [0.626, 0.5]},
        ),
    ),
    StepConstant(
        "traffic of a group, Omni-Path 2024",
        "206 Gb/s",
        ("LUC",),
        "two steps",
        patched=(_fabric("omni-path-2024"), "group_gbps", 100.0),
    ),
    StepConstant(
        "NICs of a ring's part, Slingshot",
        "1 share",
        ("AMD2",),
        "two steps of 33B",
        patched=(_fabric("slingshot"), "part_ring_shares", None),
    ),
)
