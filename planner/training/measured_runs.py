"""Measured runs that a plan rests on: how many used each of its mechanisms, and which is nearest.

``measured_runs.csv`` lists configurations of published runs (``python -m benchmarks.measured_runs``), the
errors of their predictions and the highest causal MFU of each. A run is evidence for a plan of the same
code base, device family and kind of model (dense or with experts). A family is a generation in nodes or in
racks, whose hosts and links differ.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import combinations, combinations_with_replacement
from math import log
from pathlib import Path
from statistics import median

from core.errors import InputError
from core.loading import read_text
from core.records import record
from planner.training import metrics
from planner.training.constraints import Constraints
from planner.training.mechanisms import MECHANISMS, format_mechanism, mechanisms
from planner.training.space import VALUES
from simulator.frameworks.code_bases import code_base
from simulator.models.model import Model
from simulator.ops.counts import model_parameters
from simulator.plan import Plan
from simulator.setting import Setting
from simulator.uncertainty import model_errors
from simulator.uncertainty.parts import NINETY_OVER_MEDIAN

RUNS_FILE = Path(__file__).with_name("measured_runs.csv")

LARGEST_NODE = 16
"""Devices of one node at most; more that reach each other without NICs are a rack (GB200 NVL72)."""


ABOUT = 1.5
"""Ratio of widths within which the kernels of two models are of about one size."""
FEWEST_NEAR = 3
"""Runs below which their median error says nothing of another plan."""


@record()
class MeasuredRun:
    """A measured configuration.

    Attributes:
        case: name of its row in the collection.
        source: where it was published.
        count: measured runs of this configuration (other batches, sequences and releases among them).
        parameters: of the model.
        mechanisms: what it used.
        domain: devices that reach each other without a NIC.
        hidden, feed_forward: widths of the model, the latter of an expert where it has any.
        utilisation: highest measured causal MFU of the configuration; 0 where unknown.
        errors: measured over predicted step, less 1, of each run that has a prediction.
    """

    case: str
    source: str
    framework: str
    device: str
    generation: str
    gpus: int
    model: str
    parameters: float
    experts: bool
    count: int
    mechanisms: frozenset[str]
    domain: int = 8
    hidden: int = 0
    feed_forward: int = 0
    utilisation: float = 0.0
    errors: tuple[float, ...] = ()


@cache
def measured_runs(generation: str | None = None) -> tuple[MeasuredRun, ...]:
    """The shipped runs; on devices of one generation if named."""
    header, *lines = csv.reader(read_text(RUNS_FILE).splitlines())
    column = header.index("generation")
    rows = (dict(zip(header, cells, strict=True)) for cells in lines if generation in (None, cells[column]))
    return tuple(
        MeasuredRun(
            case=row["case"],
            source=row["source"],
            framework=row["framework"],
            device=row["device"],
            generation=row["generation"],
            gpus=int(row["gpus"]),
            model=row["model"],
            parameters=float(row["parameters"]),
            experts=row["experts"] == "1",
            count=int(row["count"]),
            mechanisms=frozenset(row["mechanisms"].split("; ")),
            domain=int(row["domain"]),
            hidden=int(row["hidden"]),
            feed_forward=int(row["feed_forward"]),
            utilisation=float(row["utilisation"]),
            errors=tuple(map(float, row["errors"].split())),
        )
        for row in rows
    )


def widths(model: Model) -> tuple[int, int]:
    """Hidden size and feed-forward size of a model, the latter of an expert where it has any."""
    return model.hidden, model.moe.feed_forward if model.moe else model.feed_forward


def is_near(run: MeasuredRun, sizes: tuple[int, int]) -> bool:
    """Whether the kernels of a run's model are of about the size of those with some ``widths``."""
    return all(
        wide and max(wide / width, width / wide) <= ABOUT
        for wide, width in zip((run.hidden, run.feed_forward), sizes, strict=True)
    )


def far() -> float:
    """What nine of ten ratios of two steps are off by at most."""
    return NINETY_OVER_MEDIAN * model_errors().difference.median


@record()
class NearError:
    """How runs near a plan were predicted: with its number format, and kernels of about its model's widths.

    Those that used all mechanisms of the plan where they are enough, else all near runs.

    Attributes:
        runs: their number.
        error: measured over predicted step, less 1; median.
        models: their models.
    """

    runs: int
    error: float
    models: tuple[str, ...]

    @property
    def too_fast(self) -> bool:
        """Whether predictions were too fast by more than nine of ten steps are off by."""
        return self.error > far()


@record()
class Promise:
    """What a plan promises beside the fastest run near it.

    Attributes:
        gain: predicted causal MFU of the plan over the run's measured one, less 1.
        run: the run of the highest one of the model, device and release; without any, of all near runs.
    """

    gain: float
    run: MeasuredRun

    @property
    def beyond(self) -> bool:
        """Whether no run near comes as close as nine of ten ratios of two steps do."""
        return self.gain > far()


@record()
class PlanEvidence:
    """What measured runs say about the mechanisms of one plan.

    Attributes:
        runs: measured runs by mechanism.
        together: runs that used all mechanisms of the plan.
        nearest: the run that shares most with the plan; None without any on the device family.
        apart: pairs of mechanisms that were measured, but never together.
        near_error: how runs near the setting were predicted; None with fewer than ``FEWEST_NEAR``.
        promise: the plan beside the fastest run near it; None without a run near.
        far_from_runs: whether the model has experts and no run near the setting was measured.
    """

    runs: Mapping[str, int]
    together: int
    nearest: MeasuredRun | None
    apart: tuple[str, ...] = ()
    near_error: NearError | None = None
    promise: Promise | None = None
    far_from_runs: bool = False

    @property
    def fewest(self) -> int:
        """Measured runs of the mechanism with the fewest."""
        return min(self.runs.values(), default=0)

    @property
    def nowhere(self) -> bool:
        """Whether no run of the code base was measured on the device family at all."""
        return self.nearest is None

    @property
    def unproven(self) -> tuple[str, ...]:
        """Mechanisms without a measured run, and pairs of mechanisms without a common one."""
        return (*(name for name, count in self.runs.items() if not count), *self.apart)

    @property
    def doubtful(self) -> bool:
        """Whether a mechanism lacks a run, or no run near the plan kept and reached what it promises."""
        late = self.near_error is not None and self.near_error.too_fast
        beyond = self.promise is not None and self.promise.beyond
        return bool(self.unproven) or late or beyond or self.far_from_runs

    @property
    def marked(self) -> bool:
        """Whether runs of the code base on the device family do not bear a plan out."""
        return self.doubtful and not self.nowhere


def _errors_of(runs: Iterable[MeasuredRun]) -> NearError | None:
    """How some runs were predicted; None where they are too few."""
    listed = list(runs)
    errors = [error for run in listed for error in run.errors]
    if len(errors) < FEWEST_NEAR:
        return None
    return NearError(len(errors), median(errors), tuple(dict.fromkeys(run.model for run in listed)))


def _fastest(runs: Iterable[MeasuredRun]) -> MeasuredRun | None:
    """The run with the highest causal MFU; None without a known one."""
    return max((run for run in runs if run.utilisation), key=lambda run: run.utilisation, default=None)


def kind_words(model: Model) -> str:
    """Models of one kind, whose runs are evidence for each other."""
    if not model.decoder_only:
        return "encoders"
    return "models with experts" if model.moe else "dense models"


class RunEvidence:
    """Measured runs that are evidence for plans of a setting."""

    def __init__(self, setting: Setting, runs: Sequence[MeasuredRun] | None = None) -> None:
        self.setting = setting
        self.code, self.generation = code_base(setting.framework.name), setting.cluster.device.generation.name
        self._rack = setting.cluster.domain > LARGEST_NODE
        listed = measured_runs(self.generation) if runs is None else runs
        self.runs = [run for run in listed if self._counts(run)]

    def _counts(self, run: MeasuredRun) -> bool:
        model = self.setting.model
        experts = model.moe is not None
        rack = (run.domain > LARGEST_NODE) == self._rack
        same = run.generation == self.generation and rack and run.experts == experts
        # All measured runs train decoders.
        return same and model.decoder_only and code_base(run.framework) == self.code

    @cached_property
    def used(self) -> Mapping[str, int]:
        """Measured runs by mechanism."""
        counts: dict[str, int] = {}
        for run in self.runs:
            for name in run.mechanisms:
                counts[name] = counts.get(name, 0) + run.count
        return counts

    def measured(self, plan: Plan) -> bool:
        """Whether runs measured all mechanisms of a plan, and every two of them together."""
        used = mechanisms(self.setting, plan)
        return bool(self.runs) and all(self.used.get(name) for name in used) and not any(self._apart(used))

    def of(self, plan: Plan, utilisation: float | None = None) -> PlanEvidence:
        """The evidence for a plan; ``utilisation``: its predicted causal MFU, where known."""
        used = mechanisms(self.setting, plan)
        together = frozenset(used)
        return PlanEvidence(
            {name: self.used.get(name, 0) for name in used},
            sum(run.count for run in self.runs if together <= run.mechanisms),
            self._nearest(together),
            tuple(self._apart(used)),
            _errors_of(run for run in self.near_runs if together <= run.mechanisms) or self.near_error,
            None if utilisation is None else self._promise(utilisation),
            # Kernels of dense models lie on common tables: without near runs 86 % of first choices are inside
            # their bands, of models with experts 75 % (docs/choices.md).
            self.setting.model.moe is not None and not self.near_runs,
        )

    @cached_property
    def near_runs(self) -> list[MeasuredRun]:
        """Runs with the setting's number format and kernels of about its widths."""
        sizes, used = widths(self.setting.model), format_mechanism(self.setting)
        return [run for run in self.runs if used in run.mechanisms and is_near(run, sizes)]

    @cached_property
    def closest(self) -> list[MeasuredRun]:
        """The runs near the setting; all where none is near."""
        return self.near_runs or self.runs

    @cached_property
    def near_error(self) -> NearError | None:
        """How runs near the setting were predicted."""
        return _errors_of(self.near_runs)

    @cached_property
    def fastest(self) -> MeasuredRun | None:
        """The run near the setting with the highest causal MFU."""
        return _fastest(self.near_runs)

    @cached_property
    def rival(self) -> MeasuredRun | None:
        """The fastest run near the setting of its model, device and release; without any, of all."""
        question = self.setting.model.name, self.setting.cluster.device.name, self.setting.framework.name
        same = (run for run in self.near_runs if (run.model, run.device, run.framework) == question)
        return _fastest(same) or self.fastest

    def _promise(self, utilisation: float) -> Promise | None:
        """A predicted causal MFU beside that of the fastest run near the setting."""
        return None if self.rival is None else Promise(utilisation / self.rival.utilisation - 1, self.rival)

    @cached_property
    def shortest_s(self) -> float:
        """Shortest credible step, s: below it, MFU lies beyond `far` of the fastest near run; 0: none."""
        if self.fastest is None:
            return 0.0
        return metrics.utilisation(self.setting, 1.0, causal=True) / (self.fastest.utilisation * (1 + far()))

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Pairs of mechanisms that a run had both of, in the order of their words."""
        return frozenset(
            pair for run in self.runs for pair in combinations_with_replacement(sorted(run.mechanisms), 2)
        )

    def together(self, words: Collection[str]) -> bool:
        """Whether one of the closest runs used all of some mechanisms."""
        return any(run.mechanisms.issuperset(words) for run in self.closest)

    def _apart(self, used: Sequence[str]) -> Iterator[str]:
        """Pairs of measured mechanisms that no run had both of."""
        for first, second in combinations([name for name in used if self.used.get(name)], 2):
            if tuple(sorted((first, second))) not in self.pairs:
                yield f"{first} with {second}"

    @cached_property
    def _apart_in_size(self) -> list[tuple[bool, float]]:
        """Of each run: whether its device is another one, and the distance of the sizes of model and job."""
        parameters, device = model_parameters(self.setting.model), self.setting.cluster.device.name
        devices = self.setting.cluster.devices
        return [
            (run.device != device, abs(log(run.parameters / parameters)) + abs(log(run.gpus / devices)))
            for run in self.runs
        ]

    def _nearest(self, mechanisms: frozenset[str]) -> MeasuredRun | None:
        """The run with the fewest mechanisms that differ, then by device and size; the first of equals."""
        distances = (
            (len(run.mechanisms ^ mechanisms), *apart)
            for run, apart in zip(self.runs, self._apart_in_size, strict=True)
        )
        return min(zip(distances, self.runs, strict=True), key=lambda pair: pair[0], default=(None, None))[1]

    def proves(self, name: str, value: object) -> bool:
        """Whether all mechanisms of a field's value were measured."""
        return not self.lacking(name, value)

    def lacking(self, name: str, value: object) -> tuple[str, ...]:
        """Mechanisms of a field's value that no run measured with the number format."""
        # What a micro batch is depends on context parallelism.
        alone = name in MECHANISMS and name != "micro_batch"
        named = MECHANISMS[name](self.setting, value) if alone else ()
        if name == "tensor" and named:
            # A search shards the sequence wherever it shards tensors.
            named += MECHANISMS["sequence_parallel"](self.setting, True)
        used = format_mechanism(self.setting)
        return tuple(
            words if not self.used.get(words) else f"{words} with {used}"
            for words in named
            if not self.together((used, words))
        )

    @property
    def place(self) -> str:
        """What runs are evidence, in words."""
        kind = kind_words(self.setting.model)
        return f"{self.code} on {self.generation}{' racks' if self._rack else ''} with {kind}"

    @property
    def basis(self) -> str:
        """The runs that ``--proven`` keeps to, in words."""
        which = f" of about these widths in {format_mechanism(self.setting)}" if self.near_runs else ""
        return f"{self.place}{which}"


def proven(setting: Setting, constraints: Constraints) -> Constraints:
    """The constraints of a search, kept to what one of the closest runs used together and came near.

    Raises:
        InputError: the number format or a fixed value has no measured run.
    """
    evidence = RunEvidence(setting)
    lacking = [] if evidence.used.get(format_mechanism(setting)) else [format_mechanism(setting)]
    for name, value in constraints.fixed.items():
        lacking += evidence.lacking(name, value)
    if lacking:
        raise InputError(f"no measured run of {evidence.basis} used {', '.join(lacking)}", "--proven")
    return replace(constraints, keeps=evidence)


def nothing_proven(setting: Setting) -> InputError:
    """The error of a search that finds nothing among mechanisms with a measured run."""
    evidence = RunEvidence(setting)
    lacking = [
        words for name, of in VALUES.items() for v in of(setting) for words in evidence.lacking(name, v)
    ]
    return InputError(
        f"no plan fits that keeps to what one run of {evidence.basis} used and came near; without a run: "
        f"{', '.join(dict.fromkeys(lacking)) or 'nothing'}",
        "--proven",
    )
