"""Domains of levers: the drivers of runs that were measured with a lever, and what its gain is beyond them.

The gain of a lever in a layer is the logarithm of the layer's seconds without it over those with it. A plan
is inside the lever's domain if one measured run of the same code base, kind of model and generation had each
driver (experts of a rank, ranks that share them, tokens of a rank) within a factor of two. No gain is
expected to exceed the largest of the lever's measured runs, and outside the domain a plan is expected to
have the share that measured gains realise of predicted ones; the rest is time that it is expected to wait.
Graphs that hold the kernels of others are expected to gain as much as those, at least. Gains are those over
the levers that follow (the overlap, then ``OF_LAYERS``), so that they add up to the gain of all.

The dispatcher and the overlap of the exchange with experts have a domain for each place where the exchange
ends (``Reach``): a copy of a token that is not sent saves the time of a NIC between nodes, and that of NVLink
inside one. The overlap has one more of steps that a graph replays, whose host is never behind. Where one pull
request measured steps with and without the overlap, the measured gain or loss replaces the predicted one.
``lever_domains.csv`` is derived from rows of published runs (``python -m benchmarks.lever_domains``).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from core.errors import InputError
from core.loading import Strict, build, read_text
from core.records import record
from simulator.frameworks import frameworks
from simulator.frameworks.code_bases import code_base
from simulator.levers import Choices
from simulator.levers.graphs import GROWING
from simulator.plan import Plans
from simulator.setting import Setting

DOMAINS_FILE = Path(__file__).with_name("lever_domains.csv")
DomainLever = Literal["grouped_launches", "graphs", "dispatcher", "overlap_expert"]
OVERLAP: DomainLever = "overlap_expert"
OF_LAYERS: tuple[DomainLever, ...] = ("grouped_launches", "graphs", "dispatcher")
"""Levers of a layer with experts that have a domain, in the order in which gains are counted; the overlap of
the exchange goes before them."""
BY_REACH: tuple[DomainLever, ...] = (OVERLAP, "dispatcher")
"""Levers whose gain depends on where the exchange ends."""
Reach = Literal["replayed", "node", "domain", "network"]
"""Where the exchange of a step ends: in a node, in a domain of links of several nodes, or beyond; or the step
is replayed, not launched kernel by kernel."""
DRIVERS = "experts_a_rank", "expert_ranks", "tokens_a_rank"
NEAR = 2.0
"""Ratio up to which a driver is that of a measured run: sizes count by doublings."""
REALISED = 0.95
"""Share of a predicted gain that is measured: slope through the origin of 127 measured effects of single
levers over predicted ones, each of 16 sources with one vote (``python -m benchmarks.lever_effects``); 0.83 to
1.01 with a source left out."""


class DomainRun(Strict):
    """A measured run that used a lever: its drivers, and its gain, measured or credited by its prediction."""

    lever: DomainLever
    value: str = Field(description="value of the lever, other than the release's default")
    case: str
    source: str
    code: str = Field(description="framework of the run")
    device: str
    generation: str
    kind: Literal["experts", "hybrid"] = Field(
        description="layers: attention alone, or state-space layers too"
    )
    experts_a_rank: float = Field(gt=0)
    expert_ranks: float = Field(gt=0)
    tokens_a_rank: float = Field(gt=0)
    reach: Reach
    gain: float = Field(description="logarithm of a layer's seconds without the lever over those with it")
    of: Literal["prediction", "pair"] = Field(
        description="whose gain: a layer's as predicted, or that of two measured steps"
    )


@record()
class Domain:
    """The measured runs of one value of a lever; arrays of shape (runs, drivers) and (runs,)."""

    drivers: np.ndarray
    gains: np.ndarray
    paired: np.ndarray | bool = False
    """Whether a gain was measured, not credited by a prediction."""

    def holds(self, drivers: np.ndarray) -> np.ndarray:
        """Whether a run is near each point, shape (points,), of drivers of shape (points, drivers)."""
        if not len(self.gains):
            return np.zeros(len(drivers), dtype=bool)
        # A search asks of 100,000 points: one logarithm each, and distinct runs one after the other.
        points, inside = np.log(drivers), np.zeros(len(drivers), dtype=bool)
        for run in self.places:
            inside |= (np.abs(points - run) <= np.log(NEAR) + 1e-9).all(axis=1)
        return inside

    @cached_property
    def places(self) -> np.ndarray:
        """Logarithms of the drivers of distinct runs, shape (distinct runs, drivers)."""
        return np.array(sorted(set(map(tuple, np.log(self.drivers).tolist()))))

    @property
    def largest_gain(self) -> float:
        """The largest gain of a pair of runs, else of a run; 0 without one."""
        paired = self.gains[np.broadcast_to(self.paired, self.gains.shape)]
        return float(np.max(paired)) if len(paired) else float(np.max(self.gains, initial=0.0))

    def bounded(self, gain: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """What is expected of predicted gains, by whether runs are near; a loss beyond them as predicted."""
        far = REALISED * np.minimum(gain, max(self.largest_gain, 0.0))
        return np.where(inside, np.minimum(gain, self.largest_gain), np.where(gain > 0, far, gain))


LEFT_OUT: ContextVar[str] = ContextVar("source left out of the domains", default="")


@contextmanager
def without_source(source: str) -> Iterator[None]:
    """Domains without the runs of a source, to judge what they say about it."""
    token = LEFT_OUT.set(source)
    try:
        yield
    finally:
        LEFT_OUT.reset(token)


def read_domains(path: Path) -> tuple[DomainRun, ...]:
    """The runs of a file.

    Raises:
        InputError: a column is missing or unknown, or a value cannot be used.
    """
    header, *lines = csv.reader(read_text(path).splitlines())
    for name in DomainRun.model_fields:
        if name not in header:
            kind = "a driver" if name in DRIVERS else "a column"
            raise InputError(f"{kind} is missing: {name!r}; found {', '.join(header)}", str(path))
    return tuple(
        build(DomainRun, _typed(header, cells), f"{path}: line {number}")
        for number, cells in enumerate(lines, start=2)
    )


def _typed(header: list[str], cells: list[str]) -> dict[str, str | float]:
    """The cells of a line by column, numbers as such; words in their place are left to the checks."""
    row: dict[str, str | float] = dict(zip(header, cells, strict=False))
    for name in (*DRIVERS, "gain"):
        with suppress(ValueError, KeyError):
            row[name] = float(row[name])
    return row


@cache
def _shipped() -> tuple[DomainRun, ...]:
    return read_domains(DOMAINS_FILE)


@cache
def domain(
    lever: str, value: str, framework: str, generation: str, kind: str, left_out: str, reach: str = ""
) -> Domain:
    """The domain of a lever's value under releases of a code base on devices of a generation.

    Of levers of the exchange (``BY_REACH``) these are the runs of the same reach.
    """
    runs = [
        run
        for run in _shipped()
        if (run.lever, run.value, run.generation, run.kind) == (lever, value, generation, kind)
        and code_base(run.code) == code_base(framework)
        and run.source != left_out
        and (lever not in BY_REACH or run.reach == reach)
    ]
    drivers = np.array([[getattr(run, name) for name in DRIVERS] for run in runs]).reshape(-1, len(DRIVERS))
    paired = np.array([run.of == "pair" for run in runs], dtype=bool)
    return Domain(drivers, np.array([run.gain for run in runs]), paired)


def drivers(setting: Setting, plans: Plans) -> np.ndarray:
    """Drivers of the gains of plans of a model with experts, shape (plans, drivers)."""
    experts = setting.model.moe.experts if setting.model.moe else 1
    tokens = setting.tokens(plans) / plans.tensor
    columns = experts / plans.expert, plans.expert * plans.expert_tensor, tokens
    return np.stack([np.asarray(column, float) + np.zeros(len(plans)) for column in columns], axis=1)


def usual(setting: Setting, lever: str) -> object:
    """What a release does with a lever by itself, whatever recipe or plan say."""
    if setting.framework.name not in frameworks.names():
        return getattr(setting.choices, lever)
    return getattr(Choices.of(frameworks.get(setting.framework.name).defaults), lever)


def changed(setting: Setting, lever: DomainLever) -> str:
    """The value of a lever that a setting chooses; empty where the release does the same by itself."""
    if lever not in setting.framework.offers:
        return ""
    plain = setting.with_choices(**{lever: usual(setting, lever)})
    value, default = (
        each.graphs if lever == "graphs" else getattr(each.choices, lever) for each in (setting, plain)
    )
    return "" if value == default else str(value)


def reaches(setting: Setting, plans: Plans, lever: str) -> np.ndarray:
    """Where the exchange of plans ends (``Reach``) for a lever, shape (plans,).

    What a dispatcher saves does not depend on what launches it.
    """
    cluster, size = setting.cluster, plans.expert * plans.expert_tensor
    if setting.graphs == "step" and lever != "dispatcher":
        return np.full(len(plans), "replayed")
    ends = np.where(size <= cluster.domain, "domain", "network")
    return np.where(size <= cluster.devices_per_node, "node", ends)


def _domain(setting: Setting, lever: str, value: str, reach: str = "") -> Domain:
    generation = setting.cluster.device.generation.name
    return domain(lever, value, setting.framework.name, generation, kind_of(setting), LEFT_OUT.get(), reach)


def kind_of(setting: Setting) -> Literal["experts", "hybrid"]:
    """Kind of a model with experts."""
    return "hybrid" if setting.model.linear else "experts"


def contained(setting: Setting, lever: str, value: str) -> tuple[str, ...]:
    """Values of a lever that do a part of what a value does, and that runs measured."""
    smaller = GROWING[: GROWING.index(value)] if lever == "graphs" and value in GROWING else ()
    return tuple(part for part in smaller if len(_domain(setting, lever, part).gains))


class Nearness:
    """Domains of plans, each looked up once: no other lever changes where plans lie."""

    def __init__(self, setting: Setting, plans: Plans) -> None:
        self.setting, self.plans = setting, plans
        self._inside: dict[tuple[str, ...], np.ndarray] = {}
        self._reaches: dict[tuple[str, str], np.ndarray] = {}

    def inside(self, lever: str, value: str, reach: str = "") -> np.ndarray:
        """Whether plans with a lever lie in its domain of a reach, shape (plans,)."""
        key = lever, value, reach
        if key not in self._inside:
            runs = _domain(self.setting, lever, value, reach)
            self._inside[key] = runs.holds(drivers(self.setting, self.plans))
        return self._inside[key]

    def reaches(self, lever: str, graphs: str) -> np.ndarray:
        """Where the exchange of plans under graphs ends for a lever, shape (plans,)."""
        key = lever, graphs
        if key not in self._reaches:
            self._reaches[key] = reaches(self.setting.with_choices(graphs=graphs), self.plans, lever)
        return self._reaches[key]


def expected(
    places: Nearness,
    lever: str,
    value: str,
    gain: np.ndarray,
    rows: np.ndarray | slice = slice(None),
    graphs: str = "none",
) -> np.ndarray:
    """Expected gain of a value of a lever; arguments as those of ``waiting``."""
    if lever not in BY_REACH:
        inside = places.inside(lever, value)[rows]
        return _domain(places.setting, lever, value).bounded(gain, inside)
    ends, least = places.reaches(lever, graphs)[rows], gain
    for reach in np.unique(ends).tolist():
        inside = places.inside(lever, value, reach)[rows]
        bounded = _domain(places.setting, lever, value, reach).bounded(gain, inside)
        least = np.where(ends == reach, bounded, least)
    return least


def used(setting: Setting, overlaps: bool) -> dict[DomainLever, str]:
    """Levers of plans of models with experts and their values, in the order in which gains are counted.

    Args:
        setting: with its levers.
        overlaps: whether the exchange with experts overlaps.
    """
    levers: dict[DomainLever, str] = {OVERLAP: "True" if overlaps else ""}
    levers |= {lever: changed(setting, lever) for lever in OF_LAYERS}
    return {lever: value for lever, value in levers.items() if value}


def waiting(
    places: Nearness,
    lever: str,
    value: str,
    gain: np.ndarray,
    parts: dict[str, np.ndarray] | None = None,
    rows: np.ndarray | slice = slice(None),
    graphs: str = "none",
) -> np.ndarray:
    """Factor of a layer's seconds with a lever by what its predicted gain exceeds the expected one.

    Args:
        places: domains of plans of models with experts.
        lever: the lever, and its ``value``.
        value: as the domains have it.
        gain: logarithm of the layer's seconds without the lever over those with it, shape (gains,).
        parts: the same of values that do a part of what this one does (``contained``).
        rows: the plan of each gain; by default one each, in order.
        graphs: those that the plans have.
    """
    least = [
        expected(places, lever, part, expected_gain, rows) for part, expected_gain in (parts or {}).items()
    ]
    expected_gain = expected(places, lever, value, gain, rows, graphs)
    return np.exp(gain - np.minimum(gain, np.maximum.reduce([expected_gain, *least])))
