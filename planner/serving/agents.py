"""Agents that deployments carry: clients with one program after another, on the event engine.

The steady state ranks deployments by the turns that they serve a second; the first of them then run with
agents: a number of them is carried where the share of turns, and of whole programs where they have a
deadline, meets its target. One replica finds the number, the whole deployment confirms it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from core.errors import InputError, MeshwrightError
from planner.serving.deployment import scenario_of
from planner.serving.engine_run import Misses
from planner.serving.plan import ServingPlan
from planner.serving.preferred import Measured, measured_rows, mechanisms, preferred
from planner.serving.question import ServingQuestion
from planner.serving.search import ServingSearch
from planner.serving.search_tables import PricedTables
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting
from simulator.serving.workload.arrivals.closed import Closed

FINALISTS = 3
"""Deployments that are run with agents."""
AFFINITY = "prefix-aware"
"""Router that sends a turn to the replica with the agent's KV."""
CLOSE = 0.05
"""Width of the interval of a number of agents, over its upper end, at which it is narrow enough."""
LIVES = 3
"""Programs of each agent in a run; statistics leave out the first, in which agents begin one by one."""
MOST_TURNS = 40_000
"""Requests of a run at most; more agents are not tried."""
LEAST_TURNS = 300
RUNS = 14

Change = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, eq=False)
class Carried:
    """A deployment with the most agents that it carries.

    Attributes:
        plan: the deployment, its figures those of the run: requests are turns.
        agents: at work at any time; 0 where not one of them meets the targets.
        program_s: median seconds of a program, tools counted.
        hit_rate: share of prompt tokens found in caches.
        problem: why it cannot run.
    """

    plan: ServingPlan
    agents: int
    program_s: float = 0.0
    hit_rate: float = 0.0
    problem: str = ""

    @property
    def agents_a_kilowatt(self) -> float:
        """Agents for each kW of the devices and their hosts."""
        return 1e3 * self.agents / self.plan.watts if self.plan.watts else 0.0

    @property
    def usd_per_agent_hour(self) -> float:
        """Dollars of an agent's hour."""
        return self.plan.usd_per_hour / self.agents if self.agents else inf


@dataclass(frozen=True, eq=False)
class AgentSearch:
    """Finalists with their agents, the first choice first.

    Attributes:
        question: as asked.
        rows: deployments.
        without: agents of the first without a mechanism, by its name.
    """

    question: ServingQuestion
    rows: Sequence[Carried]
    without: Mapping[str, int]

    @property
    def short(self) -> bool:
        """Whether the first deployment carries fewer agents than asked, or none."""
        return self.rows[0].agents < (self.question.concurrency or 1)

    def scenario(self, index: int) -> dict[str, Any]:
        """A deployment with its agents as a scenario."""
        row = self.rows[index]
        return _scenario(self.question, row.plan, max(row.agents, 1))


def check_agents(question: ServingQuestion) -> ServingQuestion:
    """The question with the number of agents that closed arrivals state, where they do.

    Raises:
        InputError: programs begin at a rate.
    """
    arrivals = question.workload.arrivals
    if question.rate is not None or (arrivals is not None and arrivals.mean_rate() is not None):
        raise InputError(
            "a search carries agents, each with a program at any time: leave the rate out, or state their "
            "number (--concurrency 100)",
            "workload.arrivals",
        )
    if question.concurrency is not None or not isinstance(arrivals, Closed):
        return question
    clients = replace(question, concurrency=arrivals.concurrency)
    clients.__dict__["sample"] = question.sample
    return clients


def turns_question(question: ServingQuestion) -> ServingQuestion:
    """The search of the steady state: most turns a second on one pool."""
    changed = {"split": False, "concurrency": None, "objective": "goodput", "unasked": False}
    turns = replace(question, **changed)
    turns.__dict__["sample"] = question.sample
    return turns


def carry_agents(
    question: ServingQuestion, search: ServingSearch, measured: Measured | None = None
) -> AgentSearch:
    """The first deployments of a search with the agents that they carry.

    Args:
        question: with programs; ``concurrency`` is the number of agents that must be carried.
        search: of `turns_question`.
        measured: what measured servers say of deployments, to choose the first.

    Raises:
        InputError: the workload cannot run.
    """
    rows = [_carried(question, plan) for plan in search.plans[:FINALISTS]]
    rows = [row if row.problem else _enough(question, row) for row in rows]
    ran = [row for row in rows if not row.problem]
    if not ran:
        raise InputError(rows[0].problem, "workload")
    order = _order(question, ran, measured)
    rows = [*(ran[number] for number in order), *(row for row in rows if row.problem)]
    without = {}
    if rows[0].agents > 1:
        for name, change in WITHOUT.items():
            if name != "cache affinity" or rows[0].plan.groups[0].replicas > 1:
                without[name] = _most(question, rows[0].plan, rows[0].agents, change)[0]
    return AgentSearch(question, rows, without)


def _least_loaded(scenario: dict[str, Any]) -> None:
    scenario["deployment"]["router"] = "least-loaded"


def _dropped(scenario: dict[str, Any]) -> None:
    options = scenario["deployment"]["options"]
    scenario["deployment"]["options"] = {**options, "prefix_caching": False}


WITHOUT: Mapping[str, Change] = {"cache affinity": _least_loaded, "KV kept during tool calls": _dropped}
"""What agents gain by, with the change of a scenario that leaves it out."""


def _order(question: ServingQuestion, rows: Sequence[Carried], measured: Measured | None) -> list[int]:
    """Numbers of the rows: the one to launch, then those with most agents, or the cheapest of those asked."""
    demand = question.concurrency
    values = [
        -row.agents if demand is None else row.plan.usd_per_hour or float(row.plan.devices) for row in rows
    ]
    short = [(demand is not None and row.agents < demand) or not row.agents for row in rows]
    order = sorted(range(len(rows)), key=lambda number: (short[number], values[number]))
    sure = [number for number in order if short[number] == short[order[0]] and values[number]]
    if measured is None or not sure:
        return order
    first = sure[
        preferred(
            np.array([values[number] for number in sure], float),
            np.array([len(mechanisms(rows[number].plan)) for number in sure]),
            np.array([measured_rows(rows[number].plan, measured) for number in sure]),
            measured.band,
        )
    ]
    return [first, *(number for number in order if number != first)]


def _carried(question: ServingQuestion, plan: ServingPlan) -> Carried:
    """The most agents of a deployment: of one replica, then of all as long as they hold."""
    replicas = plan.groups[0].replicas
    try:
        alone = _with_replicas(plan, 1)
        agents, run = _most(question, alone, _first_guess(question, alone))
        if replicas > 1:
            agents, run = agents * replicas, None
            while agents and run is None:
                tried = _tried(question, plan, agents)
                if tried.holds:
                    run = tried.run
                else:
                    agents = min(int(agents * (1.0 - CLOSE)), agents - 1)
        return _row(question, plan, agents, run)
    except MeshwrightError as error:
        return Carried(plan, 0, problem=str(error))


def _enough(question: ServingQuestion, row: Carried) -> Carried:
    """The row with the fewest replicas that carry the number of agents asked for, if it is asked."""
    demand, planned_replicas = question.concurrency, row.plan.groups[0].replicas
    if demand is None or row.agents < demand or "replicas" in question.fix:
        return row
    for replicas in range(max(ceil(demand * planned_replicas / row.agents), 1), planned_replicas + 1):
        plan = _with_replicas(row.plan, replicas)
        if (tried := _tried(question, plan, demand)).holds:
            return _row(question, plan, demand, tried.run)
    return row


def _with_replicas(plan: ServingPlan, replicas: int) -> ServingPlan:
    group = replace(plan.groups[0], replicas=replicas)
    share = replicas / plan.groups[0].replicas
    return replace(
        plan,
        groups=(group,),
        goodput=share * plan.goodput,
        load=share * plan.load,
        usd_per_hour=share * plan.usd_per_hour,
    )


def _first_guess(question: ServingQuestion, plan: ServingPlan) -> int:
    """Agents by Little's law: turns a second times the seconds between a turn and the next."""
    return max(round(plan.goodput * (plan.e2e_s + question.sample.between_s)), 1)


def _most(
    question: ServingQuestion, plan: ServingPlan, expected: int, change: Change | None = None
) -> tuple[int, ServingResult | None]:
    """The most agents that a deployment carries, to `CLOSE`, with their run; 0 where not even one."""
    low, high, agents, carried = 0, 0, expected, None
    for _ in range(RUNS):
        tried = _tried(question, plan, agents, change)
        if tried.holds:
            low, carried = agents, tried.run
        else:
            high = agents
        if high and (high - low <= max(CLOSE * high, 1)):
            break
        if not high and not tried.fits:
            break
        agents = (low + high) // 2 if high and low else (2 * low if low else max(high // 2, 1))
        if agents in (low, high):
            break
    return low, carried


def _scenario(question: ServingQuestion, plan: ServingPlan, agents: int) -> dict[str, Any]:
    """A deployment under a number of agents."""
    policies = {"router": AFFINITY, **question.policies} if plan.groups[0].replicas > 1 else question.policies
    clients = replace(turns_question(question), concurrency=agents, policies=policies)
    clients.__dict__["sample"] = question.sample
    return scenario_of(clients, plan)


def _setting(
    question: ServingQuestion, plan: ServingPlan, agents: int, change: Change | None = None
) -> ServingSetting:
    """A run of agents that begin one by one over a program's time."""
    scenario = _scenario(question, plan, agents)
    if change is not None:
        change(scenario)
    tables = PricedTables([group.shape for group in plan.groups], question.sample)
    setting = make_serving(scenario, "plan", question.folder or Path(), tables)
    depth = question.sample.turns
    turns = min(max(ceil(LIVES * agents * depth), LEAST_TURNS), MOST_TURNS)
    ramp = depth * _between_s(question)
    serving = setting.serving.model_copy(
        update={
            "arrivals": Closed.model_validate({"concurrency": agents, "ramp": ramp}),
            "requests": turns,
            "warmup": 1.0 / LIVES,
        }
    )
    return replace(setting, serving=serving)


def _between_s(question: ServingQuestion) -> float:
    """Seconds from a turn to the next where the targets just hold, at most."""
    slo = question.workload.slo
    turn = slo.e2e or (slo.ttft or 0.0) + (slo.tpot or 0.0) * question.output
    return turn + question.sample.between_s


class Tried(NamedTuple):
    """A number of agents on the event engine."""

    holds: bool
    """Whether the deployment carries them."""
    fits: bool
    """Whether more of them could be tried."""
    run: ServingResult
    """Cut short where it does not hold."""


def _tried(question: ServingQuestion, plan: ServingPlan, agents: int, change: Change | None = None) -> Tried:
    """Run a deployment with a number of agents."""
    setting = _setting(question, plan, agents, change)
    misses = Misses(setting.serving)
    run = serve(setting, enough=misses.too_many)
    fits = 2 * agents * question.sample.turns <= MOST_TURNS
    return Tried(not misses.exceeded and _meets(run), fits, run)


def _meets(run: ServingResult) -> bool:
    """Whether turns and whole programs meet their targets in their share."""
    slo, deadline = run.setting.serving.slo, run.setting.serving.program.deadline
    share = run.metrics.slo_share
    if share is not None and share < slo.share:
        return False
    programs = np.array(run.fleet.program_seconds, float)
    return deadline is None or (len(programs) > 0 and float(np.mean(programs <= deadline)) >= slo.share)


def _row(question: ServingQuestion, plan: ServingPlan, agents: int, run: ServingResult | None) -> Carried:
    """The figures of a deployment with its agents; of their run, or of one agent's where it carries none."""
    run = run or serve(_setting(question, plan, max(agents, 1)))
    metrics, slo = run.metrics, question.workload.slo
    columns = run.records.columns()
    counted = columns["serial"] >= int(run.setting.serving.skipped * run.setting.serving.requests)
    first = (columns["first_s"] - columns["arrival_s"])[counted]
    tpot, e2e = metrics.latencies["tpot"], metrics.latencies["e2e"]
    programs = [seconds for seconds in run.fleet.program_seconds if seconds < inf]
    figures = replace(
        plan,
        goodput=metrics.request_rate if agents else 0.0,
        load=metrics.request_rate,
        ttft_s=float(np.quantile(first, slo.share)),
        tpot_s=tpot.mean if tpot else 0.0,
        e2e_s=e2e.mean if e2e else 0.0,
        output_tokens_s=metrics.output_rate,
        watts=metrics.joules / metrics.makespan_s,
        meets=agents > 0 and (question.concurrency is None or agents >= question.concurrency),
    )
    return Carried(figures, agents, float(np.median(programs)) if programs else 0.0, metrics.hit_rate)
