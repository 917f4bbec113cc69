"""Deployments with the agents that they carry: verdict, table, what agents gain by, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from meshwright.reports.finite import finite
from meshwright.reports.serving_evidence import error_words, plan_errors, short_evidence
from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import per_second, percent, seconds, significant
from planner.serving.agents import AgentSearch, Carried
from planner.serving.search import ServingSearch


def describe_agents(agents: AgentSearch) -> dict[str, Any]:
    """Agents with documented keys, in the order of ``deployments``."""
    return {
        "asked": agents.question.concurrency,
        "deployments": [
            {
                "agents": row.agents,
                "agents_per_kw": row.agents_a_kilowatt,
                "usd_per_agent_hour": finite(row.usd_per_agent_hour),
                "program_s": row.program_s,
                "hit_rate": row.hit_rate,
                "scenario": agents.scenario(index),
            }
            for index, row in enumerate(agents.rows)
        ],
        "without": dict(agents.without),
    }


def agent_tables(search: ServingSearch, agents: AgentSearch) -> list[Table | str]:
    """Agents for people, the first choice first, below a verdict."""
    rows = [_cells(rank, row) for rank, row in enumerate(agents.rows, 1)]
    headings = ("rank", "deployment", "agents", "TTFT", "TPOT", "program", "hits")
    headings = (*headings, "GPUs", "agents/kW", "$/h each")
    ranking = table(headings, rows, _title(agents), left=2)
    problems = [f"{row.plan.describe()}: {row.problem}" for row in agents.rows if row.problem]
    basis = _basis(agents, error_words(plan_errors(search, agents.rows[0].plan)))
    return [*_verdict(search, agents), ranking, *problems, *_without(agents), basis]


def _cells(rank: int, row: Carried) -> list[str]:
    plan = row.plan
    money = significant(row.usd_per_agent_hour) if row.agents and plan.usd_per_hour else ""
    return [
        *(str(rank), plan.describe(), f"{row.agents:,}", seconds(plan.ttft_s), seconds(plan.tpot_s)),
        *(seconds(row.program_s), percent(row.hit_rate, 0), str(plan.devices)),
        *(significant(row.agents_a_kilowatt), money),
    ]


def _verdict(search: ServingSearch, agents: AgentSearch) -> list[str]:
    row, demand = agents.rows[0], agents.question.concurrency
    plan = row.plan
    gpus = "1 GPU" if plan.devices == 1 else f"{plan.devices:,} GPUs"
    if not row.agents:
        return [f"No agent meets the targets: alone on {plan.describe()}, TTFT {seconds(plan.ttft_s)}."]
    error = plan_errors(search, plan).get("tpot")
    band = "" if error is None else f" ± {percent(error.p90, 0)}"
    money = f"{significant(row.usd_per_agent_hour)} $ an hour each" if plan.usd_per_hour else ""
    parts = [
        f"{plan.describe()}: {row.agents:,} agents at work on {gpus}",
        f"{significant(row.agents_a_kilowatt)} agents/kW",
        money,
        f"a program in {seconds(row.program_s)} (median)",
        f"TPOT {seconds(plan.tpot_s)}{band}",
        f"{per_second(plan.goodput)} turns/s",
        short_evidence(search, plan),
    ]
    parts = list(filter(None, parts))
    more = [f"No deployment tried carries {demand:,}."] if agents.short else []
    return ["\n".join(fitted(parts, more))]


def program_words(agents: AgentSearch) -> str:
    """A program in words."""
    question = agents.question
    trace, sample = question.workload.trace, question.sample
    kind = question.workload.program.kind if trace is None else f"recorded sessions of {trace.path}"
    tools = f", {seconds(sample.between_s)} of tools before one" if sample.between_s else ""
    return f"{kind}, {sample.turns:,.3g} turns{tools} in the mean"


def _title(agents: AgentSearch) -> str:
    question = agents.question
    slo, deadline = question.workload.slo, question.workload.program.deadline
    limits = (("TTFT", slo.ttft), ("TPOT", slo.tpot), ("turn", slo.e2e), ("program", deadline))
    targets = ", ".join(f"{name} {seconds(limit)}" for name, limit in limits if limit is not None)
    return (
        f"{question.model.name} on up to {question.devices} {question.cluster.device.name}: agents with "
        f"turns of {question.prompt:,.0f} in, {question.output:,.0f} out, {percent(slo.share, 0)} within "
        f"{targets}"
    )


def _without(agents: AgentSearch) -> list[Table]:
    """What the first deployment carries without each mechanism."""
    first = agents.rows[0].agents
    rows = {
        f"without {name}": f"{count:,} agents, {percent(count / first, 0)}"
        for name, count in agents.without.items()
    }
    return [facts(rows, "Rank 1 without a mechanism")] if rows else []


def _basis(agents: AgentSearch, errors: Mapping[str, str]) -> Table:
    question = agents.question
    share = question.repeated / question.prompt
    return facts(
        {
            "engine": question.engine,
            "program": program_words(agents),
            "prompts": f"{percent(share, 0)} of their tokens were in the program or its system prompt before",
            "latencies": f"TTFT is p{100 * question.workload.slo.share:.3g} of turns, TPOT their mean, "
            "program the median",
            "model": "the event engine, one seed, the number of agents to 5 %; finalists are those with most "
            "turns/s on the steady state, where caches hold all that repeats",
            **errors,
            "KV during tool calls": "stays in the prefix cache until others need the room",
            "router": "prefix-aware where there are several replicas: turns go where the agent's KV is",
            "energy": "devices and hosts over the run, tool waits counted",
        },
        "What this rests on",
    )
