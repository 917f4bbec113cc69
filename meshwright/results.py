"""Results of the Python API: frozen records with ``to_dict``, ``page`` and more of `Result`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from core.errors import InfeasibleError
from meshwright.reports.flat import of_plan
from meshwright.reports.parts import grouped
from meshwright.reports.plans import describe_plan, describe_search, describe_setting
from meshwright.result_base import Result, check_rank
from planner.training.prediction import Prediction, Simulation
from planner.training.search import SearchResult
from simulator.plan import Plan
from simulator.scenario import MixedScenario, Scenario

if TYPE_CHECKING:
    from meshwright.pages.page import Page
    from meshwright.variations.answer import Outcome
    from planner.mixed import MixedSearch
    from planner.training.refine import Refined
    from planner.training.scored_plans import ScoredPlans
    from simulator.engine.timeline import Timeline
    from simulator.training.mixed import MixedStep


@dataclass(frozen=True, repr=False)
class PlanReport(Result):
    """One plan and its predicted step.

    Attributes:
        plan: degrees, schedule, sharding, ...
        step_time_s: seconds of an optimizer step.
        step_time_uncertainty: half-width of the band as a share of the step; None where the engine timed it.
        tokens_per_s_per_gpu: throughput of a device.
        mfu, hfu: model and hardware FLOP/s over the dense peak.
        mfu_causal: as ``mfu``, counting only keys that the causal mask leaves.
        usd_per_million_tokens, kwh_per_million_tokens: money at list price, energy with hosts.
        peak_memory_bytes, capacity_bytes: of the fullest device; ``fits`` compares them.
        time_breakdown_s: seconds of the step by part; the parts add up to ``step_time_s``.
        details: everything, under the keys of docs/json.md.
    """

    plan: Plan
    step_time_s: float
    step_time_uncertainty: float | None
    tokens_per_s_per_gpu: float
    mfu: float
    mfu_causal: float
    hfu: float
    usd_per_million_tokens: float
    kwh_per_million_tokens: float
    peak_memory_bytes: float
    capacity_bytes: float
    fits: bool
    time_breakdown_s: Mapping[str, float]
    details: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> PlanReport:
        """Build from the ``--json`` mapping of a plan."""
        memory = report["memory"]
        same = (
            "step_time_s",
            "step_time_uncertainty",
            "tokens_per_s_per_gpu",
            "mfu",
            "mfu_causal",
            "hfu",
            "usd_per_million_tokens",
            "kwh_per_million_tokens",
            "time_breakdown_s",
        )
        return cls(
            plan=Plan(**report["plan"]),
            peak_memory_bytes=memory["peak_bytes"],
            capacity_bytes=memory["capacity_bytes"],
            fits=memory["fits"],
            details=report,
            **{name: report[name] for name in same},
        )

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.tables import facts
        from meshwright.reports.units import gibibytes, percent, seconds, significant

        memory = f"{gibibytes(self.peak_memory_bytes)} of {gibibytes(self.capacity_bytes)}"
        rows = {
            "plan": f"{self.plan.describe()}, micro batch {self.plan.micro_batch}",
            "step": seconds(self.step_time_s),
            "tok/s/GPU": f"{self.tokens_per_s_per_gpu:,.0f}",
            "MFU": percent(self.mfu),
            "memory": memory if self.fits else f"{memory}: does not fit",
            "$/Mtok": significant(self.usd_per_million_tokens),
            "kWh/Mtok": significant(self.kwh_per_million_tokens),
        }
        return [facts(rows, "Plan")]

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        return {self.plan.describe(): grouped(self.time_breakdown_s)}

    @property
    def title(self) -> str:
        """The plan in short."""
        return self.plan.describe()

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [of_plan(self.details)]

    def to_dict(self) -> dict[str, Any]:
        """The ``--json`` mapping of this plan."""
        return dict(self.details)


@dataclass(frozen=True, eq=False, repr=False)
class PlanSearch(Result):
    """The best plans of a search in order, and the number of candidates removed by every rule."""

    result: SearchResult
    refined: Sequence[Refined] = ()
    scored: ScoredPlans | None = None
    """Every scored plan, where the search was asked to keep them."""
    run: Mapping[str, Any] | None = None
    """The ``run`` of the asked scenario, which scenarios of plans keep."""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the event engine's runs early."""
        if not self.refined:
            return False
        from planner.training.refine import INTERRUPTED

        return any(run.problem == INTERRUPTED for run in self.refined)

    @cached_property
    def found(self) -> Prediction:
        """The plans with step, memory and metrics as arrays, one row per plan."""
        return Prediction.of_search(self.result)

    @cached_property
    def plans(self) -> tuple[PlanReport, ...]:
        """The plans in order."""
        return tuple(PlanReport.of(report) for report in self.to_dict()["plans"])

    @property
    def best(self) -> PlanReport:
        """The first plan.

        Raises:
            InfeasibleError: no plan fits; the message names the fullest part and the shortfall.
        """
        self.check()
        return self.plans[0]

    def check(self) -> None:
        """Raise if no plan fits.

        Raises:
            InfeasibleError: no plan fits.
        """
        if not len(self.result.plans):
            shortfall = self.result.shortfall
            raise InfeasibleError(shortfall.message() if shortfall else "no plan fits")

    def scenario(self, index: int = 0) -> dict[str, Any]:
        """A plan as a scenario that ``simulate`` reads, with the same prediction.

        Raises:
            InputError: the search returned fewer plans.
        """
        from simulator.scenario_file import scenario_of

        check_rank(index, len(self.result.plans))
        written = scenario_of(self.result.setting, self.result.plans.plan(index))
        return written if self.run is None else {**written, "run": dict(self.run)}

    def trials(self, count: int) -> list[tuple[int, float]]:
        """The plans worth measuring next: their ranks, and what each measurement is expected to gain.

        Gains are shares of the step, beyond those of the plans before.

        Raises:
            InputError: fewer plans are shown.
        """
        from planner.training.confidence import worth_measuring
        from simulator.uncertainty import covariance

        check_rank(count - 1, len(self.result.plans))
        step = self.result.step
        worth, gains = worth_measuring(step.time, covariance(self.result.setting, step), count)
        return [(index + 1, gain) for index, gain in zip(worth, gains, strict=True)]

    def _tables(self) -> Sequence[Any]:
        if not len(self.result.plans):
            return ["no plan fits"]
        from meshwright.reports.plans import ranked
        from meshwright.reports.verdict import headline

        return [headline(self.found), ranked(self.found, wide=False, more=False)]

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        named = enumerate(self.plans, start=1)
        return {f"{rank}: {plan.plan.describe()}": grouped(plan.time_breakdown_s) for rank, plan in named}

    def page(self) -> Page:
        """The page of the ranking, with an explorer where every scored plan was kept (``every=True``)."""
        from meshwright.pages.plans import plans_page

        self.check()
        return plans_page(self.result, self.found, self.to_dict()["plans"], self.scored)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [of_plan(report) for report in self.to_dict()["plans"]]

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan --json``."""
        prediction, more = self.found, [{} for _ in range(len(self.result.plans))]
        if self.refined:
            from meshwright.reports.refined import describe_refined

            more = [describe_refined(prediction, list(self.refined), index) for index in range(len(more))]
        return describe_search(self.result, prediction, more)


@dataclass(frozen=True, eq=False, repr=False)
class StepSimulation(Result):
    """One plan's step: figures, and the timeline if the event engine ran."""

    scenario: Scenario
    plan: Plan
    simulation: Simulation

    @property
    def title(self) -> str:
        """The scenario's title; model and devices where it has none."""
        cluster = self.scenario.setting.cluster
        named = f"{self.scenario.setting.model.name} on {cluster.devices:,} {cluster.device.name}"
        return self.scenario.title or named

    @cached_property
    def report(self) -> PlanReport:
        """The plan and its predicted step."""
        return PlanReport.of(describe_plan(self.simulation.prediction, 0))

    @cached_property
    def traffic(self) -> Any:
        """Bytes that a device of the slowest stage sends, by level of links and kind."""
        from simulator.training.traffic import step_traffic

        return step_traffic(self.scenario.setting, self.plan)

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.plans import whole_plan
        from meshwright.reports.step_verdict import step_headline

        prediction = self.simulation.prediction
        return [step_headline(prediction), *whole_plan(prediction, self.title)]

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        return self.report._bars()

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.report._rows()

    def page(self) -> Page:
        """The page of the step on the event engine, which runs here where it has not."""
        from meshwright.pages.step import step_page
        from planner.training.prediction import simulate_plan

        run = self.simulation
        if run.timeline is None:
            run = simulate_plan(self.scenario.setting, self.plan, engine=True)
        return step_page(self.title, run.prediction, cast("Timeline", run.timeline), run.analytic_step_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping that ``meshwright simulate --json`` prints."""
        report = {"title": self.scenario.title, **describe_setting(self.scenario.setting)}
        report |= self.report.to_dict()
        timeline = self.simulation.timeline
        if timeline is not None:
            from meshwright.reports.timeline import describe_run

            report["engine"] = describe_run(timeline, self.simulation.analytic_step_s, self.traffic)
        return report


@dataclass(frozen=True, eq=False, repr=False)
class MixedSimulation(Result):
    """One plan's step on a cluster of groups.

    ``engine`` is the step that the event engine timed, where it ran; ``step`` is that of the closed form, or
    the engine's where the schedule has none.
    """

    scenario: MixedScenario
    step: MixedStep
    engine: MixedStep | None = None

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.mixed import mixed_tables

        return mixed_tables(self.to_dict())

    @property
    def title(self) -> str:
        """The scenario's title; model and cluster where it has none."""
        named = f"{self.scenario.setting.model.name} on {self.scenario.setting.cluster.name}"
        return self.scenario.title or named

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        seconds = self.step.seconds
        return {
            group.share.group.name: {"busy": group.compute_s, "waiting": max(seconds - group.compute_s, 0.0)}
            for group in self.step.groups
        }

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [of_plan(self.to_dict())]

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping that ``meshwright simulate --json`` prints."""
        from meshwright.reports.mixed import describe_mixed

        return describe_mixed(self.scenario, self.step, self.engine)


@dataclass(frozen=True, eq=False, repr=False)
class MixedSearchResult(Result):
    """Ranked plans on a cluster of groups, fastest first."""

    search: MixedSearch

    @property
    def plans(self) -> list[MixedSimulation]:
        """The plans; each is a scenario that ``simulate`` takes, with its step."""
        return [MixedSimulation(plan.scenario, plan.step, plan.engine) for plan in self.search.plans]

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.mixed import ranked_groups

        return ranked_groups(self.to_dict())

    @property
    def title(self) -> str:
        """The title of the first plan."""
        self.check()
        return self.plans[0].title

    def _bars(self) -> Mapping[str, Mapping[str, float]]:
        named = enumerate(self.plans, start=1)
        return {
            f"{rank}: {plan.scenario.plan.describe()}": {"step": plan.step.seconds} for rank, plan in named
        }

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [of_plan(report) for report in self.to_dict()["plans"]]

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping that ``meshwright plan --json`` prints."""
        placements = [plan.data["placement"] for plan in self.search.plans]
        reports = [
            {"rank": rank, "placement": dict(placement), **plan.to_dict()}
            for rank, (plan, placement) in enumerate(zip(self.plans, placements, strict=True), start=1)
        ]
        return {
            "candidates": self.search.candidates,
            "priced": self.search.predicted,
            "least_step_time_s": self.search.least_s,
            "plans": reports,
        }

    def check(self) -> None:
        """Refuse an empty ranking.

        Raises:
            InfeasibleError: no plan fits.
        """
        if not self.search.plans:
            tried = f"{self.search.candidates:,} splits of stages and replicas over the groups"
            raise InfeasibleError(f"no plan fits: none of {tried} has enough memory")


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """A base scenario and its variations, timed or with the reason why they cannot run."""

    title: str
    outcomes: Sequence[Outcome]
    engine: bool = False
    interrupted: bool = False

    def _tables(self) -> Sequence[Any]:
        from meshwright.variations.tables import answer_table

        return answer_table(self.title, self.outcomes)

    def page(self) -> Page:
        """The page of the variations."""
        from meshwright.pages.variations import variations_page

        return variations_page(self.title, self.outcomes)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """The base, then the variations that ran."""
        reports = self.to_dict()
        rows = [{"label": "base", **reports["base"]}, *reports["variations"]]
        # The label first, then the change.
        return [
            {"label": row["label"], "step_time_change": row.get("step_time_change"), **of_plan(row)}
            for row in rows
            if "problem" not in row
        ]

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright whatif --json``."""
        from meshwright.variations.tables import describe_outcomes, step_changes

        return describe_outcomes(
            self.title, self.outcomes, self.interrupted, step_changes, engine=self.engine
        )
