"""``meshwright plan serve | mix | day``: deployments, the cheapest mix of GPU types, replicas over a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.commands import INTERRUPTED

if TYPE_CHECKING:
    from meshwright.commands.plan_files import PlanFiles
    from meshwright.commands.plan_flags import DayFlags, LoadFlags, MixFlags, ServeFlags
    from planner.execution import Execution

NEEDED = ("model", "cluster", "gpus", "isl", "osl")
USUAL, EMBEDDINGS = "chat", "embeddings"
"""Use of servers whose requests nobody states."""
NEEDED_OF_A_MIX = ("model", "isl", "osl", "rate")
MOST_PLANS = 10_000
PLANS = 5


def planned_by(scenario: str) -> str:
    """The question of `plan` that a scenario asks: train, serve or rl; empty without a scenario."""
    from meshwright.jobs import job_of
    from meshwright.questions.scenarios import read_question

    return job_of(*read_question(scenario)).planned_by if scenario else ""


def plan_serving(
    flags: ServeFlags, constraints: Mapping[str, Mapping[str, str]], execution: Execution, files: PlanFiles
) -> None:
    """Search and print deployments, and save one if requested.

    Raises:
        InputError: a wrong flag, or one that is missing.
        InfeasibleError: no deployment meets the targets; the message names the best latency.
    """
    import typer

    from core.errors import InfeasibleError, InputError
    from meshwright.commands.output import note, note_model, print_json, progress, show_tables, write_page
    from meshwright.deployments import deploy
    from meshwright.exporters.launchers import engine_target, export_words
    from meshwright.questions.policies import tried_policies
    from meshwright.reports.serving_agents import agent_tables
    from meshwright.reports.serving_plans import deployment_tables
    from meshwright.reports.serving_policies import describe_policies, policy_tables
    from meshwright.reports.serving_shortfall import falls_short, nearest_words

    files.refuse("serving plans", "csv")
    top = PLANS if flags.top is None else flags.top
    if not 1 <= top <= MOST_PLANS:
        raise InputError(f"must be from 1 to {MOST_PLANS:,}, found {top:,}", "--top")
    files.check_rank(top)
    with progress("searching") as advance:
        search = deploy(
            flags.scenario or None,
            **_load(flags),
            fix=constraints["fix"],
            limit=constraints["limit"],
            top=top,
            refine=flags.refine,
            tries=tried_policies(flags.tries or ()),
            execution=execution,
            progress=advance,
        )
    note_model(search.search.question.model)
    if flags.json:
        tried = describe_policies(search.policies)
        print_json({**search.to_dict(), **tried})
    elif search.search.plans:
        launch = export_words(engine_target(search.search.question.engine), files.save)
        tried = policy_tables(search.search.question, search.policies)
        tables = deployment_tables(search.search, search.refined, search.look, flags.more)
        tables = tables if search.agents is None else agent_tables(search.search, search.agents)
        show_tables(*tables, *tried, launch)
    if search.search.plans:
        write_page(search, files.html)
    if not search.search.plans:
        raise InfeasibleError(nearest_words(search.search))
    files.save_scenario(search)
    if falls_short(search.search) or (search.agents is not None and search.agents.short):
        raise typer.Exit(1)
    if search.interrupted:
        note(f"interrupted: {len(search.refined)} of {flags.refine} deployments were run on the event engine")
        raise typer.Exit(INTERRUPTED)


def plan_mix(flags: MixFlags) -> None:
    """Search and print the cheapest mix of GPU types; with ``refine``, run it on the event engine too.

    Raises:
        InputError: a wrong flag, or one that is missing.
        InfeasibleError: no mix carries the load within the targets.
    """
    from meshwright.api import serving as serving_api
    from meshwright.commands.output import progress, tell, write_page

    check_given(flags, NEEDED_OF_A_MIX)
    names = ("model", "isl", "osl", "rate", "engine", "watts")
    question: dict[str, Any] = {name: getattr(flags, name) for name in names}
    question |= {**flags.constraints, **targets_of(flags)}
    with progress("searching") as advance:
        mix = serving_api.mix(
            flags.types,
            flags.scenario or None,
            split=not flags.together,
            progress=advance,
            **question,
        )
    if flags.refine:
        from planner.serving.mix.run import run_mix

        with progress("running the mix") as advance:
            mix = replace(mix, run=run_mix(mix, advance))
    tell(mix, flags.json)
    write_page(mix, flags.html)


def plan_days(flags: DayFlags) -> None:
    """Plan and print replicas over a day.

    Raises:
        InputError: a wrong flag, or one that is missing.
        InfeasibleError: no replica meets the targets, or the devices do not carry the highest rate.
    """
    from meshwright.api import serving as serving_api
    from meshwright.commands.output import progress, tell, write_page
    from meshwright.questions.training import device_count

    check_given(flags, needed(flags))
    names = ("model", "cluster", "isl", "osl", "engine")
    question: dict[str, Any] = {name: getattr(flags, name) for name in names}
    question |= {**flags.constraints, **targets_of(flags)}
    with progress("planning the day") as advance:
        timetable, _ = serving_api.day(
            flags.scenario or None,
            rates=flags.rates,
            gpus=device_count(flags.gpus) if flags.gpus else None,
            cold_start=flags.cold_start,
            refine=bool(flags.refine),
            progress=advance,
            **question,
        )
    tell(timetable, flags.json)
    write_page(timetable, flags.html)


def _load(flags: ServeFlags) -> dict[str, Any]:
    """Flags as arguments of ``mw.deploy``.

    Raises:
        InputError: a flag is missing or cannot be read.
    """
    from meshwright.questions.training import device_count

    check_given(flags, needed(flags))
    names = ("model", "cluster", "isl", "osl", "rate", "engine", "objective", "watts")
    names = (*names, "prefix", "images", "concurrency", "site", "pools", "deadline")
    return {
        **{name: getattr(flags, name) for name in names},
        "use": _use(flags),
        "split": not flags.together,
        "requests": None if flags.requests is None else str(flags.requests),
        "gpus": device_count(flags.gpus) if flags.gpus else None,
        **targets_of(flags),
    }


def _without_lengths(flags: ServeFlags | DayFlags) -> bool:
    """Whether a question without a scenario says nothing of its requests."""
    stated = (getattr(flags, name, None) for name in ("isl", "osl", "use", "requests", "prefix"))
    return hasattr(flags, "use") and not flags.scenario and all(value is None for value in stated)


def _use(flags: ServeFlags) -> str | None:
    """The use of a question: what it states, or the usual one of its model, with a note."""
    from meshwright.commands.output import note
    from simulator.models import models

    if flags.use or flags.scenario:
        return flags.use
    if not _without_lengths(flags):
        targets = (flags.ttft, flags.tpot, flags.deadline, flags.objective)
        return EMBEDDINGS if flags.osl == 0 and all(value is None for value in targets) else None
    model = None if flags.model is None else models.get(flags.model, "--model")
    usual = USUAL if model is None or model.causal else EMBEDDINGS
    note(f"note: requests of --use {usual}, as none are stated; --isl and --osl, or --use, state others")
    return usual


def needed(flags: ServeFlags | DayFlags) -> tuple[str, ...]:
    """Flags without which there is no question: no ``--gpus`` where ``--cluster`` counts its GPU types."""
    counted = "=" in (flags.cluster or "")
    lengths = getattr(flags, "use", None) is not None or getattr(flags, "requests", None) is not None
    lengths = lengths or _without_lengths(flags)
    unneeded = {*(("gpus",) if counted else ()), *(("isl", "osl") if lengths else ())}
    return tuple(name for name in NEEDED if name not in unneeded)


def check_given(flags: LoadFlags, needed: tuple[str, ...]) -> None:
    """Refuse a question without a scenario that lacks required flags.

    Raises:
        InputError: a flag is missing.
    """
    from core.errors import InputError

    missing = [f"--{name}" for name in needed if getattr(flags, name) is None]
    if missing and not flags.scenario:
        uses = hasattr(flags, "use") and "isl" in needed
        lengths = " (--use chat, code, agents or batch has lengths)" if uses else ""
        every = f"--{' --'.join(needed)}{lengths}"
        hint = " (meshwright show clusters lists names)" if "--cluster" in missing else ""
        raise InputError(f"{' '.join(missing)} missing{hint}; give a scenario, or all of {every}")


def targets_of(flags: LoadFlags) -> dict[str, Any]:
    """The latency targets, and the share of requests that must meet them.

    Raises:
        InputError: not readable, or two shares.
    """

    from meshwright.questions.targets import one_share, target

    _note_seconds(flags)
    _note_embeddings(flags)
    ttft, first = target(flags.ttft, "--ttft") if flags.ttft is not None else (None, None)
    tpot, other = target(flags.tpot, "--tpot") if flags.tpot is not None else (None, None)
    return {"ttft": ttft, "tpot": tpot, "share": one_share(first, other)}


def _note_embeddings(flags: LoadFlags) -> None:
    """Say how requests without an output are priced."""
    from meshwright.commands.output import note

    if getattr(flags, "osl", None) == 0:
        note("note: --osl 0: an embedding is priced as the prompt's pass with one output token")


LONG_TARGETS_S = {"ttft": 60.0, "tpot": 1.0}
"""Targets without a unit from which milliseconds were probably meant."""


def _note_seconds(flags: LoadFlags) -> None:
    """Say that a target without a unit is in seconds, where it is longer than services promise."""
    from meshwright.commands.output import note

    for name, long_s in LONG_TARGETS_S.items():
        text = (getattr(flags, name) or "").rpartition("=")[2].strip()
        if text.replace(".", "", 1).isdigit() and float(text) >= long_s:
            note(f"note: --{name} {text} is {text} seconds; milliseconds are written {text}ms")
