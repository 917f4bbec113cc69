"""Searches of deployments: the best of them, and the question that arguments ask."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack

from core.errors import InfeasibleError, InputError
from meshwright.measured.served_errors import measured_of
from meshwright.questions.arguments import DeployArguments, check_names
from meshwright.questions.references import Reference
from meshwright.questions.serving import serving_question
from meshwright.questions.targets import one_share, target
from meshwright.result_base import Result, check_rank
from planner.execution import Execution
from planner.serving.agents import (
    FINALISTS,
    AgentSearch,
    carry_agents,
    check_agents,
    turns_question,
)
from planner.serving.alternatives import NEXT
from planner.serving.deployment import scenario_of
from planner.serving.engine_check import Check, check
from planner.serving.plan import ServingPlan
from planner.serving.policies import PolicySearch, try_policies, with_policies
from planner.serving.preferred import Measured
from planner.serving.question import ServingQuestion
from planner.serving.refine import RefinedServing, refine_serving
from planner.serving.search import ServingSearch, search_serving

if TYPE_CHECKING:
    from meshwright.pages.page import Page

MOST_WATTS = 1e12


@dataclass(frozen=True, eq=False, repr=False)
class DeploymentSearch(Result):
    """The best deployments, and the highest rates found on the event engine by their index."""

    search: ServingSearch
    refined: Mapping[int, RefinedServing] = field(default_factory=dict)
    interrupted: bool = False
    """Whether Ctrl-C ended the event engine's runs early."""
    policies: PolicySearch | None = None
    """Policies tried around the first deployment, on the event engine."""
    look: Check | None = None
    """What the event engine said of the first deployments by default."""
    agents: AgentSearch | None = None
    """Agents that the deployments carry, where requests are turns of programs."""

    def _tables(self) -> Sequence[Any]:
        if self.agents is not None:
            from meshwright.reports.serving_agents import agent_tables

            return agent_tables(self.search, self.agents)
        if not self.search.plans:
            return ["no deployment meets the targets"]
        from meshwright.reports.serving_plans import deployment_tables

        return deployment_tables(self.search, self.refined, self.look)

    def page(self) -> Page:
        """The page of the ranking."""
        from meshwright.pages.answers import deployments_page
        from meshwright.reports.serving_plans import deployment_tables
        from meshwright.reports.serving_shortfall import nearest_words

        if not self.search.plans:
            raise InfeasibleError(nearest_words(self.search))
        tables = deployment_tables(self.search, self.refined, self.look, more=True)
        if self.agents is not None:
            return deployments_page(self.search, self._tables(), unit="turns")
        return deployments_page(self.search, tables)

    def to_dict(self) -> dict[str, Any]:
        """The mapping that ``meshwright plan serve --json`` prints."""
        from meshwright.reports.serving_plans import describe_deployments

        described = describe_deployments(self.search, self.refined, self.look)
        if self.agents is not None:
            from meshwright.reports.serving_agents import describe_agents

            described["agents"] = describe_agents(self.agents)
        return described

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        from meshwright.reports.serving_columns import plan_figures

        return [
            {"deployment": plan.describe(), **plan_figures(plan), "shown_as": reason}
            for plan, reason in zip(self.search.plans, self.search.reasons, strict=True)
        ]

    @property
    def best(self) -> ServingPlan:
        """The first deployment.

        Raises:
            InfeasibleError: no deployment meets the targets.
        """
        if not self.search.plans:
            raise InfeasibleError("no deployment meets the targets")
        return self.search.plans[0]

    def scenario(self, index: int = 0) -> dict[str, Any]:
        """A deployment as a scenario that ``simulate`` reads, with the best of the policies that were tried.

        Raises:
            InputError: the search returned fewer deployments.
        """
        check_rank(index, len(self.search.plans))
        if self.agents is not None:
            return self.agents.scenario(index)
        deployed = scenario_of(self.search.question, self.search.plans[index])
        return deployed if self.policies is None else with_policies(deployed, self.policies.best.policies)


def deploy(
    scenario: Reference | None = None,
    *,
    split: bool = True,
    top: int = 5,
    refine: int | None = None,
    tries: Mapping[str, Sequence[Any]] | None = None,
    execution: Execution | None = None,
    progress: Callable[[float], None] | None = None,
    **arguments: Unpack[DeployArguments],
) -> DeploymentSearch:
    """Search deployments for the lowest cost, energy or latency at a rate, or for the highest goodput.

    Where nothing carries the rate, the deployments are those that carry most, at the rate that they carry.

    Args:
        scenario: a serving scenario (file, shipped name or mapping); ``arguments`` replace its keys.
        split: try separate pools for prefill and decode too.
        top: deployments to return.
        refine: number of best deployments whose highest rate the event engine finds too; by default a look
            at three (``planner.serving.engine_check``) where that takes below a second.
        tries: values of policies by key of the deployment (``planner.serving.policies.TRIED``; None goes
            without), tried around the first deployment on the event engine.
        execution: where the event engine runs, and the store of its results; by default all cores.
        progress: called with the finished share.
        arguments: see ``DeployArguments``.

    Raises:
        InputError: a wrong or unknown argument.
        InfeasibleError: no replica fits.
    """
    values = check_names(arguments, DeployArguments, inspect.signature(deploy).parameters)
    question = deployment_question(scenario, values, split)
    measured = measured_of(question)
    if question.programs:
        return _with_agents(question, top, refine, tries, progress, measured)
    ranking = search_serving(question, max(top, refine or 0), progress, formats=True, measured=measured)
    if question.unasked and not ranking.plans and ranking.nearest is not None and ranking.nearest.goodput > 0:
        # Nothing carries the rate: what carries most, at the rate that it carries.
        goodput = replace(question, objective="goodput")
        ranking = search_serving(goodput, max(top, refine or 0), progress, formats=True, measured=measured)
    look = check(ranking, measured) if refine is None else Check(ranking, {})
    ranking, runs = look.search, dict(look.runs)
    interrupted = False
    try:
        for number, run in refine_serving(question, ranking.plans[: refine or 0], execution or Execution()):
            runs[number] = run
    except KeyboardInterrupt:
        interrupted = True
    policies = None
    if tries and ranking.plans and not interrupted:
        policies = try_policies(question, ranking.plans[0], tries, execution or Execution())
    return DeploymentSearch(ranking, runs, interrupted, policies, look)


def _with_agents(
    question: ServingQuestion,
    top: int,
    refine: int | None,
    tries: Mapping[str, Sequence[Any]] | None,
    progress: Callable[[float], None] | None,
    measured: Measured | None,
) -> DeploymentSearch:
    """Deployments with the agents that they carry; arguments as of `deploy`.

    Raises:
        InputError: programs that begin at a rate, or options that agents do not have.
        InfeasibleError: no replica fits.
    """
    question = check_agents(question)
    for name, value in (("--refine", refine), ("--try", tries)):
        if value:
            raise InputError("agents are run on the event engine already; leave it out", name)
    ranking = search_serving(turns_question(question), max(top, FINALISTS), progress, measured=measured)
    if not ranking.plans:
        return DeploymentSearch(ranking)
    agents = carry_agents(question, ranking, measured)
    ranking = replace(ranking, plans=[row.plan for row in agents.rows], reasons=[NEXT] * len(agents.rows))
    return DeploymentSearch(ranking, agents=agents)


def _targets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Targets that are written as text (500ms, p99=2s), in seconds, and their share.

    Raises:
        InputError: not readable, or two shares.
    """
    read = {
        name: target(values[name], name)
        for name in ("ttft", "tpot", "deadline")
        if isinstance(values.get(name), str)
    }
    if not read:
        return {}
    share = one_share(values.get("share"), *(share for _, share in read.values()))
    return {name: seconds for name, (seconds, _) in read.items()} | {"share": share}


def power_budget(watts: float | None) -> float | None:
    """A power budget, W.

    Raises:
        InputError: not a positive number, or too large.
    """
    if watts is not None and not 0 < watts < MOST_WATTS:
        raise InputError(f"must be above 0 and below {MOST_WATTS:g} W, found {watts:g}", "watts")
    return watts


def deployment_question(
    scenario: Reference | None, values: Mapping[str, Any], split: bool = True
) -> ServingQuestion:
    """The checked question of arguments; those that its function has not are left out."""
    values = {**check_names({}, DeployArguments), **values}
    values |= _targets(values)
    lacking = [name for name in ("isl", "osl") if values.get(name) is None]
    if scenario is None and lacking and not (values.get("use") or values.get("requests")):
        raise InputError(
            "missing; tokens of a prompt and of an answer, or use: chat has both", ", ".join(lacking)
        )
    fix, limit, watts = values.pop("fix"), values.pop("limit"), power_budget(values["watts"])
    question = serving_question(scenario, {**values, "watts": watts}, fix or {}, limit or {})
    # Requests of one token have nothing to decode.
    several = question.output > 1.0
    _check_pools(question, split, several)
    return replace(question, split=split and several and question.concurrency is None)


def _check_pools(question: ServingQuestion, split: bool, several: bool) -> None:
    """Refuse attention pools where prefill and decode have none of their own.

    Raises:
        InputError: the reason.
    """
    if "attention" not in question.pools:
        return
    reasons = {
        "--together excludes them": not split,
        "--concurrency tries one pool alone": question.concurrency is not None,
        "requests of one output token decode nothing": not several,
        "a decoder with an encoder has one pool": question.model.encoder is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"attention pools stand beside a decode pool and a prefill pool; {reason}", "--pools"
            )
