"""``mw.learn``: what a user's measured steps say about kernels, links, host and memory of their machines, and
measured servers about an engine's steps and front end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from core.files import write_text
from meshwright.observations.server_results import is_servers, read_servers
from meshwright.observations.training_logs import SUFFIXES, read_log
from meshwright.result_base import PICTURES, Result
from meshwright.validation.cases import TrainingCase, read_cases
from simulator.schedules import schedules
from simulator.site import SITE_FORMAT, Site, read_site
from simulator.uncertainty.learning import CONTRADICTS, Learned, MeasuredStep, learn_site
from simulator.uncertainty.servers import LearnedServer, MeasuredLoad, learn_server

if TYPE_CHECKING:
    from meshwright.pages.page import Page

MOST_APART = 1.5
"""Measured times of one plan further apart than this factor cannot both be right."""
TWICE = 0.2
"""Relative gap between two measured times of one plan from which on they contradict each other."""


@dataclass(frozen=True, eq=False, repr=False)
class SiteLearning(Result):
    """What measurements say of a site.

    Attributes:
        site: the factors; ``save`` writes them as a site file.
    """

    site: Site

    def save(self, path: str | Path) -> Path:
        """Write the site file; a page, a picture or a table by its suffix (`Result.save`).

        Raises:
            InputError: the file cannot be written.
        """
        import yaml

        if Path(path).suffix in (".html", ".csv", *PICTURES):
            return super().save(path)
        data = self.site.model_dump(mode="json", exclude_none=True)
        write_text(Path(path), yaml.safe_dump(data, sort_keys=False, width=110))
        return Path(path)

    def page(self) -> Page:
        """The page of errors and factors."""
        from meshwright.pages.learning import learning_page

        return learning_page(self.to_dict(), self._tables())


@dataclass(frozen=True, eq=False, repr=False)
class Learning(SiteLearning):
    """Factors learned from measured steps, and what they do to the predictions of these steps.

    Attributes:
        learned: errors before, after, and with each run left out.
        steps: the runs.
        skipped: rows without a step time or with an incomplete configuration, and the reasons.
        contradictions: runs that contradict each other or all others, in words.
        warnings: runs that are predicted not to fit.
    """

    learned: Learned
    steps: Sequence[MeasuredStep]
    skipped: Sequence[tuple[str, str]]
    contradictions: Sequence[str]
    warnings: Sequence[str]

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.learning import learned_tables

        return learned_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright learn --json``."""
        from meshwright.reports.learning import describe_learning

        return describe_learning(self)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.to_dict()["learned_runs"]


@dataclass(frozen=True, eq=False, repr=False)
class ServerLearning(SiteLearning):
    """Factors learned from measured servers, and what they do to the predictions of these loads.

    Attributes:
        learned: errors before, after, and with each load left out.
        loads: the measured loads.
        skipped: rows that were left out, and the reasons.
        contradictions: loads that contradict each other or all others, in words.
    """

    learned: LearnedServer
    loads: Sequence[MeasuredLoad]
    skipped: Sequence[tuple[str, str]]
    contradictions: Sequence[str]

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.learned_servers import server_tables

        return server_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright learn --json``."""
        from meshwright.reports.learned_servers import describe_servers

        return describe_servers(self)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.to_dict()["learned_loads"]


LEARNED_FROM = "CSV of measured steps, logs (.log, .out, .txt), results of benchmark clients (.json, .jsonl)"


def learn(
    runs: str | Path | Sequence[str | Path], *, site: str | Path | None = None
) -> Learning | ServerLearning:
    """Learn a site's factors from measured steps, or from measured servers.

    Args:
        runs: of training: CSV files with the columns of ``validate --cases``, and logs of Megatron-LM or
            torchtitan with their scenario beside them (``observations``); of servers: results of
            benchmark clients with their scenario beside them, and CSV files with the columns of closed loops
            (``meshwright.observations.server_results``). All of one device, and of one framework or engine.
        site: a site file of the device, whose other half is kept: servers beside steps, or the reverse.

    Raises:
        InputError: unreadable, no usable row or line, several devices, frameworks or engines, or times of one
            plan that cannot both be right.
        InfeasibleError: a server's model does not fit.
    """
    files = [Path(runs)] if isinstance(runs, str | Path) else [Path(path) for path in runs]
    for path in files:
        if path.suffix.lower() in (".yaml", ".yml", ".sh"):
            beside = "" if path.suffix == ".sh" else "; a scenario lies beside them, as plan.yaml"
            raise InputError(
                f"is no measurement; files that can be learned from: {LEARNED_FROM}{beside}", str(path)
            )
    served = [path for path in files if is_servers(path)]
    if served and len(served) < len(files):
        other = next(path for path in files if path not in served)
        raise InputError(f"holds training steps, {served[0]} servers; learn each apart", str(other))
    earlier = None if site is None else read_site(site, "site", Path())
    return _learn_servers(files, earlier, site) if served else _learn_steps(files, earlier, site)


def _joined(learned: Site, earlier: Site | None, name: str | Path | None, half: str) -> Site:
    """A site with the other half of an older one.

    Raises:
        InputError: the older one is of another device.
    """
    if earlier is None:
        return learned
    if earlier.device != learned.device:
        raise InputError(
            f"was learned on the device {earlier.device}, the runs are of {learned.device}", str(name)
        )
    if half == "server":
        return earlier.model_copy(update={"server": learned.server})
    return learned.model_copy(update={"server": earlier.server})


def _learn_servers(files: Sequence[Path], earlier: Site | None, name: str | Path | None) -> ServerLearning:
    """Learn from measured servers; see `learn`."""
    loads: list[MeasuredLoad] = []
    skipped: list[tuple[str, str]] = []
    for path in files:
        measured, left_out = read_servers(path)
        loads += measured
        skipped += left_out
    where = ", ".join(map(str, files))
    if not loads:
        raise InputError(f"no load to learn from{_reasons(skipped)}", where)
    learned = learn_server(loads, where)
    server = learned.site
    site = Site(site_format=SITE_FORMAT, source=where, device=server.device, server=server)
    words = _twice(loads, where) + [
        f"{loads[index].name} {kind.replace('_', ' ')} lies {abs(value):.1f} standard deviations from what "
        "the other loads say"
        for index, kind, value in zip(learned.loads, learned.kinds, learned.surprise.tolist(), strict=True)
        if abs(value) > CONTRADICTS
    ]
    return ServerLearning(_joined(site, earlier, name, "server"), learned, loads, skipped, words)


def _reasons(skipped: Sequence[tuple[str, str]]) -> str:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
    return f" ({reasons})" if reasons else ""


def _twice(loads: Sequence[MeasuredLoad], where: str) -> list[str]:
    """Equal loads with different times per output token.

    Raises:
        InputError: times that cannot both be right.
    """
    words = []
    same: dict[str, list[tuple[float, str]]] = {}
    for load in loads:
        kind = next((kind for kind in load.learned_from if kind.startswith("tpot")), None)
        if kind is not None:
            key = repr((kind, {**load.data, "workload": {**load.data["workload"], "requests": 0}}))
            same.setdefault(key, []).append((load.measured[kind], load.name))
    for values in same.values():
        (low, first), (high, last) = min(values), max(values)
        problem = f"{first} (TPOT {1e3 * low:.4g} ms) and {last} ({1e3 * high:.4g} ms) are of one load"
        if high > MOST_APART * low:
            raise InputError(f"{problem}: they cannot both be right; leave one out", where)
        if high > (1 + TWICE) * low:
            words.append(problem)
    return words


def _learn_steps(files: Sequence[Path], earlier: Site | None, name: str | Path | None) -> Learning:
    """Learn from measured steps; see `learn`."""
    cases: list[TrainingCase] = []
    skipped: list[tuple[str, str]] = []
    steps = [read_log(path) for path in files if path.suffix in SUFFIXES]
    for path in files:
        if path.suffix in SUFFIXES:
            continue
        measured, left_out = read_cases(path)
        cases += measured
        skipped += left_out
    where = ", ".join(map(str, files))
    for case in cases:
        if case.measured_step_s is None:
            skipped.append((case.case_id, "no measured step time"))
        elif not schedules[case.plan.schedule].has_closed_form:
            skipped.append((case.case_id, f"the schedule {case.plan.schedule} has no closed form"))
        else:
            steps.append(_step(case, case.measured_step_s))
    if not steps:
        raise InputError(f"no row to learn from{_reasons(skipped)}", where)
    _one_place(steps, where)
    learned = learn_site(steps, where)
    words = _contradictions(steps, learned, where)
    joined = _joined(learned.site, earlier, name, "steps")
    return Learning(joined, learned, steps, skipped, words, _too_large(steps))


def _step(case: TrainingCase, seconds: float) -> MeasuredStep:
    return MeasuredStep(case.case_id, case.setting, case.plan, seconds, case.measured_peak_bytes)


def _one_place(steps: Sequence[MeasuredStep], where: str) -> None:
    """Refuse runs of several devices or frameworks, whose factors differ."""
    places = {
        "devices": sorted({step.setting.cluster.device.name for step in steps}),
        "frameworks": sorted({step.setting.framework.name for step in steps}),
    }
    for kind, names in places.items():
        if len(names) > 1:
            raise InputError(f"holds runs of several {kind}: {', '.join(names)}; learn each apart", where)


def _contradictions(steps: Sequence[MeasuredStep], learned: Learned, where: str) -> list[str]:
    """Runs of one plan with different times, and runs that no other run makes plausible.

    Raises:
        InputError: times of one plan that cannot both be right.
    """
    words = []
    plans: dict[tuple[str, str], list[MeasuredStep]] = {}
    for step in steps:
        plans.setdefault((repr(step.setting), repr(step.plan)), []).append(step)
    for same in plans.values():
        low, high = (pick(same, key=lambda step: step.seconds) for pick in (min, max))
        problem = f"{low.name} ({low.seconds:.4g} s) and {high.name} ({high.seconds:.4g} s) are of one plan"
        if high.seconds > MOST_APART * low.seconds:
            raise InputError(f"{problem}: they cannot both be right; leave one out", where)
        if high.seconds > (1 + TWICE) * low.seconds:
            words.append(problem)
    words += [
        f"{step.name} lies {abs(value):.1f} standard deviations from what the other runs say"
        for step, value in zip(steps, learned.surprise.tolist(), strict=True)
        if abs(value) > CONTRADICTS
    ]
    return words


def _too_large(steps: Sequence[MeasuredStep]) -> list[str]:
    """Runs that are predicted not to fit."""
    from planner.training.prediction import Prediction

    words = []
    for step in steps:
        peak = float(Prediction.of(step.setting, step.plan).memory.peak[0])
        capacity = step.setting.cluster.device.memory_bytes
        if peak > capacity:
            words.append(
                f"{step.name} is predicted to need {peak / 2**30:.1f} GiB of {capacity / 2**30:.1f} GiB; its "
                "step time counts, and peak_memory_gib would correct the memory"
            )
    return words
