"""Open loops whose replicas do not depend on each other, replayed as kernels over columns.

Without feedback, failures, scaling and policies that read replicas, each replica runs its requests alone. The
answers are those of the loops in `simulator.serving.replica`, to the bit; what the kernels do not know runs
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from simulator.serving.replay import routed
from simulator.serving.replay.columns import (
    COMPILER,
    LOADED,
    PATIENCE,
    PLAIN,
    ROUTED,
    SINGLE,
    STAGED,
    Units,
    cache_columns,
    run_fleet,
    run_replica,
    sequence_columns,
    state_columns,
)
from simulator.serving.replay.layout import MOST_SEQUENCES
from simulator.serving.replay.prices import prices_of
from simulator.serving.replica.guards import guarded
from simulator.serving.replica.kv import PagedBlocks, PrefixBlocks
from simulator.serving.replica.meter import ROWS
from simulator.serving.replica.pipeline import PipelinedReplica
from simulator.serving.replica.replica import Replica
from simulator.serving.replica.schedulers.chunked import Chunked
from simulator.serving.replica.schedulers.continuous import Continuous
from simulator.serving.replica.schedulers.exact_budget import ExactBudget
from simulator.serving.replica.schedulers.prefill_first import PrefillFirst
from simulator.serving.routers.freeness import Freeness
from simulator.serving.routers.least_loaded import LeastLoaded
from simulator.serving.routers.power_of_two import PowerOfTwo
from simulator.serving.routers.prefix_aware import PrefixAware
from simulator.serving.routers.round_robin import RoundRobin
from simulator.serving.routers.scored import Scored
from simulator.serving.steps.table import IterationTable
from simulator.serving.workload.request import Request
from simulator.serving.workload.request_columns import RequestColumns

if TYPE_CHECKING:
    import simpy

    from simulator.serving.fleet.encoding import EncoderQueue
    from simulator.serving.fleet.member import Member
    from simulator.serving.fleet.watch import Watch
    from simulator.serving.replica.records import Records
    from simulator.serving.setting import ServingSetting
    from simulator.serving.workload.source import Source

SCHEDULERS = (Chunked, Continuous, ExactBudget, PrefillFirst)
MOST_UNITS = 1 << 25
"""Prefix ids times replicas of a fleet whose caches are kept side by side, 24 bytes each."""
AUTOMATIC, LOOPS, LISTS, COMPILED = "automatic", "loops", "lists", "compiled"
"""Forms of a run: compiled where that is sooner done; the loops of `simulator.serving.replica`; kernels
over lists; kernels compiled, however short the run."""
_FORM: ContextVar[str] = ContextVar("form", default=AUTOMATIC)
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Run(Protocol):
    """A run before its first request, as a replay reads it."""

    setting: ServingSetting
    clock: simpy.Environment
    members: list[Member]
    entry: list[Member]
    encoder: EncoderQueue | None
    moves: Any
    records: Records
    refused: int
    sent: int
    random: np.random.Generator
    source: Source

    def counted(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Requests of the workload, whose number is known when the last of them came."""
        ...


@contextmanager
def run_as(form: str) -> Iterator[None]:
    """Run what the kernels know in a form; the answers are the same."""
    token = _FORM.set(form)
    try:
        yield
    finally:
        _FORM.reset(token)


def knows(fleet: Run) -> bool:
    """Whether kernels give a run's answers: nothing but arrivals acts on its replicas."""
    setting = fleet.setting
    if _FORM.get() == LOOPS:
        return False
    alone = len(fleet.entry) == 1 or type(setting.router) is RoundRobin or rule_of(fleet) is not None
    quiet = fleet.clock.peek() == inf and fleet.moves is None and fleet.encoder is None
    return (
        alone
        and quiet
        and not setting.router.added
        and not guarded()
        and fleet.members == fleet.entry
        and all(_knows_replica(member) for member in fleet.members)
    )


def rule_of(fleet: Run) -> Floats | None:
    """The router of replicas of one kind as kernels read it; None where they do not know it."""
    router, members = fleet.setting.router, fleet.members
    same_kind = len({id(member.pool) for member in members}) == 1 and type(members[0].replica) is Replica
    if not same_kind or len(members) == 1:
        return None
    if type(router) is LeastLoaded:
        return np.array([routed.LEAST_LOADED, router.waiting_weight], float)
    if type(router) is PrefixAware:
        parameters = router.match_share, router.load_difference, router.load_ratio
        return np.array([routed.PREFIX_AWARE, *parameters], float)
    if type(router) is Freeness:
        return np.array([routed.FREENESS], float)
    if type(router) is Scored and not router.tier and not router.records:
        return np.array([routed.SCORED, router.queue, router.load, router.kv, router.prefix], float)
    return np.array([routed.POWER_OF_TWO], float) if type(router) is PowerOfTwo else None


def _knows_replica(member: Member) -> bool:
    """Whether kernels run a replica: its loop, blocks, scheduler and prices are those that they tell."""
    replica, options = member.replica, member.pool.options
    batchers = replica.batchers
    return (
        type(replica) in (Replica, PipelinedReplica)
        and type(replica.steps) is IterationTable
        and type(replica.scheduler) in SCHEDULERS
        and all(type(batcher.kv) in (PagedBlocks, PrefixBlocks) for batcher in batchers)
        and all(batcher.drafts is None and not batcher.window.ratio for batcher in batchers)
        and replica.stretches
        and options.preemption != "swap"
        and member.adapters is None
        and member.receive_interval == 1
        and member.ready_s <= 0.0
        and member.pool.pool.role == "mixed"
        and not member.meter.traced
    )


def _units(requests: RequestColumns, kv: PrefixBlocks) -> Units:
    """Units of the prefixes of all requests in a cache, numbered from 0 on."""
    step = kv.unit_tokens // kv.span_tokens
    count = requests.ids // step
    first = np.cumsum(count) - count
    places = np.arange(int(count.sum())) - np.repeat(first, count)
    ids = requests.prefixes[np.repeat(requests.first_id + step - 1, count) + places * step]
    different, numbers = np.unique(ids, return_inverse=True)
    blocks = kv.unit_tokens // kv.block_tokens
    return Units(numbers, first, count, len(different), kv.unit_tokens, blocks)


def replay(fleet: Run, most_tokens: int, watch: Watch | None = None) -> Iterator[Request]:
    """Run all requests of an open loop over columns; returns those that are left for other loops to run.

    Args:
        fleet: a run before its first request.
        most_tokens: of the longest request that a replica takes.
        watch: who follows the run.
    """
    source, fewest = fleet.source, 0 if _FORM.get() != AUTOMATIC else LOADED
    if not knows(fleet) or (watch is not None and watch.enough is not None):
        return fleet.counted(source.requests())
    if source.serving.requests < fewest or (fewest and not COMPILER.usable()):
        return fleet.counted(source.requests())
    packed = source.columns()
    inside = packed.prompt + packed.output <= most_tokens
    placed = packed if inside.all() else packed.take(inside)
    loops = _loops(fleet, placed) if len(packed) >= fewest else {}
    if not loops:
        return fleet.counted(packed.unpacked())
    fleet.sent = len(packed)
    fleet.refused += len(packed) - len(placed)
    rule = rule_of(fleet)
    if rule is not None:
        _run_routed(fleet, placed, rule, loops[ROUTED])
        if watch is not None and watch.progress is not None:
            watch.progress(1.0)
        return iter(())
    done, count = 0, len(fleet.members)
    for number, member in enumerate(fleet.members):
        of_member = placed.take(slice(number, None, count))
        _run_member(fleet, member, of_member, loops[_loop_of(member)])
        done += -(-(len(placed) - number) // count)
        if watch is not None and watch.progress is not None:
            watch.progress(done / len(placed))
    return iter(())


def _loops(fleet: Run, requests: RequestColumns) -> dict[str, Callable[..., Any]]:
    """Loops over columns of the kinds of replicas; none where plain ones are sooner done, or prices do not
    reach."""
    if not len(requests) or not all(_reaches(member, requests) for member in fleet.members):
        return {}
    loops: dict[str, Callable[..., Any]] = {}
    form = _FORM.get()
    if len(requests.prefixes) * len(fleet.members) > MOST_UNITS and rule_of(fleet) is not None:
        return {}
    kinds = {_loop_of(member) for member in fleet.members}
    for name in kinds if rule_of(fleet) is None else {ROUTED}:
        if form == LISTS:
            loops[name] = PLAIN[name]
            continue
        compiles = form == COMPILED or PATIENCE.runs_fast(name, len(requests))
        loop = COMPILER.entry(name) if compiles else None
        if loop is None:
            return {}
        loops[name] = loop
    return loops


def _loop_of(member: Member) -> str:
    """Name of the loop of a replica that runs alone."""
    return STAGED if type(member.replica) is PipelinedReplica else SINGLE


def _reaches(member: Member, requests: RequestColumns) -> bool:
    """Whether prices and columns of a replica reach over all requests."""
    options, table = member.pool.options, member.replica.steps
    if not isinstance(table, IterationTable) or not len(requests):
        return False
    slots = max(batcher.slots for batcher in member.replica.batchers)
    longest = int((requests.prompt + requests.output).max())
    chunk = options.token_budget if options.chunked_prefill else max(longest, options.token_budget)
    finds_freed = any(batcher.kv.keeps_freed for batcher in member.replica.batchers) and requests.cached.any()
    fits = len(requests) < MOST_SEQUENCES and not finds_freed
    return fits and prices_of(table).reach(slots, slots + chunk, chunk, longest)


def _state_of(
    member: Member, requests: RequestColumns, units: Units | None, number: int = 0
) -> tuple[Ints, Floats, Ints]:
    """Columns of an idle replica; ``number`` is that of its prefix cache."""
    batchers, scheduler = member.replica.batchers, member.replica.scheduler
    return state_columns(
        member.pool.options,
        len(batchers),
        batchers[0].slots,
        batchers[0].kv.free,
        len(requests),
        prompts_first=isinstance(scheduler, PrefillFirst),
        always_cuts=isinstance(scheduler, Chunked) and scheduler.always_cuts,
        units=units,
        number=number,
    )


def _table_of(member: Member) -> IterationTable:
    """Prices of a replica that `_reaches` took."""
    return cast(IterationTable, member.replica.steps)


def _run_routed(fleet: Run, requests: RequestColumns, rule: Floats, loop: Callable[..., Any]) -> None:
    """Run replicas whose router looks at them."""
    members, router = fleet.members, fleet.setting.router
    kv, table = members[0].replica.batchers[0].kv, _table_of(members[0])
    units = _units(requests, kv) if isinstance(kv, PrefixBlocks) else None
    queued_s = requests.arrival_s + members[0].ingest_s
    sequences, times = sequence_columns(queued_s, requests.prompt, requests.output, units)
    cached = np.zeros(1, np.int64) if units is None else cache_columns(units, len(members))
    draws = fleet.random.random(2 * len(requests)) if rule[0] == routed.POWER_OF_TWO else np.zeros(1)
    states = [_state_of(member, requests, units, number) for number, member in enumerate(members)]
    times, seen = run_fleet(
        states,
        sequences,
        times,
        requests.arrival_s,
        cached,
        prices_of(table),
        rule,
        draws,
        router.reads_kv,
        lambda number, rows: members[number].meter.add(rows),
        loop,
    )
    for number, member in enumerate(members):
        member.last_s = float(times[seen[:, 2] == number, -1].max(initial=0.0))
    index = np.array([member.index for member in members])[seen[:, 2]]
    _record(fleet, requests, times, seen[:, :2], index)


def _record(fleet: Run, requests: RequestColumns, times: Floats, seen: Ints, replica: Ints) -> None:
    """Keep the records of requests that have all their tokens."""
    none = np.zeros(len(requests))
    ends = [requests.prompt, requests.output, seen, replica, none - 1.0, requests.priority]
    fleet.records.add_rows(np.column_stack([requests.serial, requests.arrival_s, times, *ends, none]))


def _run_member(fleet: Run, member: Member, requests: RequestColumns, loop: Callable[..., bool]) -> None:
    """Run the requests of one replica, and keep its rows and records."""
    if not len(requests):
        return
    replica, meter = member.replica, member.meter
    table, kv = _table_of(member), replica.batchers[0].kv
    units = _units(requests, kv) if isinstance(kv, PrefixBlocks) else None
    queued_s = requests.arrival_s + member.ingest_s
    sequences, times = sequence_columns(queued_s, requests.prompt, requests.output, units)
    cached = np.zeros(1, np.int64) if units is None else cache_columns(units)
    state = _state_of(member, requests, units)

    def add_up(rows: Floats) -> None:
        for start in range(0, len(rows), ROWS):
            meter.add(rows[start : start + ROWS])

    times, seen = run_replica(state, sequences, times, cached, prices_of(table), add_up, loop)
    member.last_s = float(times[:, -1].max())
    _record(fleet, requests, times, seen, np.full(len(requests), member.index))
