"""All replicas of a deployment under one workload: arrivals, routing, programs, and completions.

Replicas step independently. Without feedback from completions, a replica advances when an arrival reads its
state; otherwise the replica whose step ends next advances first. All other timed events lie on a simpy clock.
At one instant events and arrivals precede the ends of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace
from math import inf
from typing import Any

import numpy as np
import simpy

from simulator.serving.adapters import AdapterDraws
from simulator.serving.fleet.builder import Builder
from simulator.serving.fleet.clients import ProgramClients, Users
from simulator.serving.fleet.encoding import EncoderQueue
from simulator.serving.fleet.looking import Looking
from simulator.serving.fleet.member import Member
from simulator.serving.fleet.replayed import replay
from simulator.serving.fleet.transfer import Transfers
from simulator.serving.fleet.watch import EnoughError, Watch
from simulator.serving.question.failures import Failures
from simulator.serving.replica.base import ignore
from simulator.serving.replica.meter import Meter, TraceRoom
from simulator.serving.replica.records import Records
from simulator.serving.replica.sequence import Sequence
from simulator.serving.setting import PoolSetting, ServingSetting
from simulator.serving.workload.request import Request
from simulator.serving.workload.source import Source


class Fleet:
    """One run.

    Args:
        setting: the serving setting.
        traced: keep the slices of every step for a trace.
        stretches: sum decode stretches in closed form.
    """

    def __init__(self, setting: ServingSetting, traced: bool = False, stretches: bool = True) -> None:
        self.setting = setting
        place, images = f"{setting.where}: workload", setting.pictures.tokens if setting.pictures else 0
        self.source = Source(setting.serving, setting.seed, setting.folder, setting.context, place, images)
        self._adds = setting.router.added
        """Most tokens that the router adds to a prompt."""
        self._most_tokens = setting.longest_request - self._adds
        self.records = Records()
        self.refused = 0
        self.failed = 0
        """Requests abandoned: lost in replica failures more often than the retry limit."""
        self.retries = 0
        self._unplaced: list[Sequence] = []
        """Sequences held while all replicas have failed or are drained."""
        self.starts: dict[str, list[dict[str, float]]] = {}
        """Starts in stages by pool: time, and seconds of each stage."""
        self.sent = setting.serving.requests
        """Number of requests of the workload; for a trace, known only at its end."""
        self.interrupted = False
        self._watch: Watch | None = None
        self._in_turn = False
        self._timed = False
        """Whether events lie on the clock, or once did."""
        self.clock = simpy.Environment()
        self.random = np.random.default_rng([setting.seed, 7])
        self._looks = np.random.default_rng([setting.seed, 13])
        adapters = setting.deployment.adapters
        self._adapters = AdapterDraws(adapters, [setting.seed, 17]) if adapters is not None else None
        self._room = TraceRoom() if traced else None
        self._builder = Builder(setting, self.source, self._left, stretches)
        self.moves: Any = None
        """Moves of sequences (`moving.Moving`), where a policy is named."""
        self.lanes, self.stores = self._builder.lanes, self._builder.stores
        self.members: list[Member] = []
        for pool in setting.pools:
            for number in range(pool.pool.replicas):
                self.add(pool, 0.0, pool.first_rank + number * pool.pool.devices)
        self.entry = [member for member in self.members if member.pool.pool.role != "decode"]
        self.decoding = [member for member in self.members if member.pool.pool.role == "decode"]
        self._transfers = Transfers(setting.model.layers, setting.deployment.transfer == "layer-wise")
        self.encoder = EncoderQueue.of(setting)
        self._routed = self._handed = 0
        self._split = bool(self.decoding)
        """Whether prompts and outputs run in different pools."""
        self._programs, self._users = self._program_clients(), self._user_clients()
        self.program_seconds = [] if self._programs is None else self._programs.seconds
        """Seconds of each program that ran to its end; inf where a request of it was lost."""
        clients = self._programs is not None or self._users is not None
        # Replicas that share links run in the order of time.
        shared = setting.deployment.shares_links or setting.migration is not None
        self._feeds_back = clients or self._split or shared
        self._looking = Looking(setting.router, self.members, self._feeds_back, self.source.prefix_tokens)

    def _program_clients(self) -> ProgramClients | None:
        """Clients whose programs send a request after another ends; None where arrivals are independent."""
        if not self.source.feeds_back:
            return None
        return ProgramClients(self.source, self.sent, self.send, self._at, self._later)

    def _user_clients(self) -> Users | None:
        """Users who each wait for their own requests; None where the workload has none."""
        serving = self.setting.serving
        return Users(serving.users, serving.user_gap, self.send, self._later) if serving.users else None

    @property
    def ended(self) -> bool:
        """Whether all requests of the workload have ended."""
        return len(self.records) + self.refused + self.failed >= self.sent

    def add(self, pool: PoolSetting, now: float, rank: int = 0) -> Member:
        """Start a replica of a pool; it takes no requests before it is in ``entry``."""
        member = self._member(pool, rank)
        member.index, member.rank = len(self.members), rank
        member.start(now)
        self.members.append(member)
        return member

    def takers(self, pool: PoolSetting) -> list[Member]:
        """Replicas of a pool that take requests."""
        entry = self.decoding if pool.pool.role == "decode" else self.entry
        return [member for member in entry if member.pool is pool]

    def runs(self, pool: PoolSetting) -> bool:
        """Whether a replica of a pool is up, from which others can copy its weights."""
        return bool(self.takers(pool))

    @property
    def unplaced(self) -> int:
        """Requests that wait for a replica to take them."""
        return len(self._unplaced)

    def run(self, watch: Watch | None = None) -> None:
        """Run until all requests have ended; Ctrl-C and ``watch`` end it early and keep those that ended.

        Raises:
            InputError: the trace or a request in it is wrong.
        """
        self._watch = watch
        try:
            if self._programs is not None:
                self._run_fed((time, None) for time in self.source.starts())
            elif self._feeds_back:
                self._run_fed(
                    (request.arrival_s, request) for request in self.counted(self.source.requests())
                )
            else:
                self._run_stream()
        except KeyboardInterrupt:
            self.interrupted = True
        except EnoughError:
            pass
        finally:
            self._release()
        self.failed += len(self._unplaced)

    def _release(self) -> None:
        """Break reference cycles: iteration tables (tens of MiB) are freed with the result."""
        self._builder.on_leave = ignore
        self._programs = self._users = None
        for member in self.members:
            member.replica.on_leave = ignore
        self.clock = simpy.Environment(self.clock.now)

    def counted(self, requests: Iterator[Request]) -> Iterator[Request]:
        """Requests of the workload, whose number is known when the last of them came."""
        sent = 0
        for request in requests:
            sent += 1
            yield request
        self.sent = sent

    def _run_stream(self) -> None:
        """Requests of an open loop, independent of the fleet."""
        clock = self.clock
        self._timed = clock.peek() < inf
        for request in replay(self, self._most_tokens, self._watch):
            # A request may add events: the copy of its adapter ends later.
            while self._timed and clock.peek() <= request.arrival_s:
                clock.step()
            self.send(request)
        while (event := clock.peek()) < inf and not self.ended:
            for member in self.members:
                self.advance(member, event)
            if not self.ended:
                clock.step()
        for member in self.members:
            member.replica.advance(inf)

    def send(self, request: Request) -> bool:
        """Route a request and queue it; False where it is longer than a replica holds."""
        if request.prompt + request.output > self._most_tokens:
            self.refused += 1
            return False
        if self._adapters is not None:
            request = self._adapters.assign(request)
        sequence = Sequence(request, request.arrival_s)
        if self.encoder is None:
            self._place(sequence, request.arrival_s)
        else:
            self._later(self.encoder.encode(sequence), lambda now: self._place(sequence, now))
        return True

    def _place(self, sequence: Sequence, time: float) -> None:
        """Queue a sequence on the replica that the router picks; hold it where none takes requests."""
        entry, router, request = self.entry, self.setting.router, sequence.request
        if not entry:
            self._unplaced.append(sequence)
            return
        if router.looks and len(entry) > 1:
            self._looking.look(entry, time)
        member = entry[self._looking.pick(request, entry, self._routed, self.random)]
        self._routed += 1
        if self._adds and not sequence.retries:
            sequence = Sequence(router.sent(request, member), time)
            request = sequence.request
        if member.pool.pool.role == "prefill":
            sequence.output = 1
        if self.encoder is not None and sequence.encoded is not None:
            failures, sequence.queued_s = member.failures, self.encoder.sent(sequence, member)
            self._at(sequence.queued_s, lambda now: self.arrive(member, failures, sequence, now))
            return
        store, failures = member.adapters, member.failures
        if store is not None and (ready := store.take(request.adapter, time)) > time:
            sequence.queued_s = ready + member.ingest_s
            self._later(sequence.queued_s, lambda now: self.arrive(member, failures, sequence, now))
            return
        if member.receive_interval > 1 or time < member.ready_s:
            self._receive_late(member, sequence, time)
            return
        sequence.queued_s = now = time + member.ingest_s
        self._submit(member, sequence, now)

    def _receive_late(self, member: Member, sequence: Sequence, time: float) -> None:
        """Queue a sequence when the replica's kernels are compiled and it next looks at its queue."""
        late, failures = max(member.ready_s - time, 0.0), member.failures
        self.advance(member, time)
        busy = member.replica.under_way
        if busy is not None and member.receive_interval > 1:
            _, decodes, kv_tokens, _ = busy
            step_s = member.pool.costs.steps.step((), decodes, kv_tokens) if decodes else 0.0
            late += member.receive_interval * step_s * float(self._looks.random())
        sequence.queued_s = time + late + member.ingest_s
        self._at(sequence.queued_s, lambda now: self.arrive(member, failures, sequence, now))

    def _submit(self, member: Member, sequence: Sequence, now: float) -> None:
        replica = member.replica
        sequence.replica, member.advanced_s = member.index, now
        end = replica.next_s
        replica.advance(now)
        replica.submit(sequence, now)
        looking = self._looking
        if replica.next_s != end:
            looking.touch(member)
        elif looking.notes:
            looking.changed(member.index)

    def _run_fed(self, arrivals: Iterator[tuple[float, Request | None]]) -> None:
        """Run with feedback from completions: the replica whose step ends next advances first.

        Args:
            arrivals: instants with the request that arrives, or None where a program begins.
        """
        programs, users = self._programs, self._users
        never: tuple[float, Request | None] = (inf, None)
        start, request = next(arrivals, never)
        clock, members, looking = self.clock, self.members, self._looking
        queue, next_timed = looking.ends, clock.peek
        while True:
            while queue and members[queue[0][1]].replica.next_s != queue[0][0]:
                heappop(queue)
            if programs is not None and programs.done:
                start = inf
            timed = next_timed()
            outside = timed if timed < start else start
            if queue and queue[0][0] < outside:
                end = queue[0]
                index = end[1]
                replica = members[index].replica
                replica.turn()
                if replica.next_s < inf:
                    # The turn may have put earlier ends of other replicas before its own.
                    put = heapreplace if queue[0] is end else heappush
                    put(queue, (replica.next_s, index))
                if looking.notes:
                    looking.changed(index)
            elif outside == inf or (start == inf and programs is not None and programs.idle):
                # Processes on the clock may never end.
                return
            elif timed <= outside:
                clock.step()
            else:
                if programs is not None:
                    programs.begin(start)
                elif request is not None:
                    users.arrive(request) if users is not None else self.send(request)
                start, request = next(arrivals, never)

    def _at(self, time: float, what: Callable[[float], None]) -> None:
        """Call a function at a time: now if it has come and no replica is in its turn, else by the clock."""
        if time <= self.clock.now and not self._in_turn:
            what(time)
            return
        self._later(time, what)

    def _later(self, time: float, what: Callable[[float], None]) -> None:
        """Call a function at a time, by the clock."""
        self._timed = True
        timeout = self.clock.timeout(max(time - self.clock.now, 0.0))
        timeout.callbacks.append(lambda _: what(time))

    def _left(self, sequence: Sequence, now: float) -> None:
        """Handle the last token of a sequence; its effects wait for the end of the replica's turn."""
        self._in_turn = True
        if sequence.output < sequence.request.output and self._split:
            self._hand_over(sequence, now)
        else:
            self._record(sequence, now)
        self._in_turn = False

    def _record(self, sequence: Sequence, now: float) -> None:
        self.records.add(sequence)
        if self._watch is not None:
            self._watch.ended(self.records, self.refused)
        member = self.members[sequence.replica]
        member.last_s = now
        if member.adapters is not None:
            member.adapters.leave(sequence.request.adapter)
        if self._feeds_back:
            self._answered(sequence.request, now)

    def _answered(self, request: Request, now: float, lost: bool = False) -> None:
        """Let the client of an ended request go on."""
        if self._programs is not None:
            self._programs.ended(request, now, lost)
        elif self._users is not None:
            self._users.ended(request, now)

    def _hand_over(self, sequence: Sequence, now: float) -> None:
        """Send a prompt's KV to a decode replica, which computes the second token."""
        request, targets = sequence.request, self.decoding
        if not targets:
            self._retry(sequence, now)
            return
        target = targets[self._looking.pick(request, targets, self._handed, self.random)]
        self._handed += 1
        source = self.members[sequence.replica]
        bytes_ = request.prompt * source.pool.costs.kv_token_bytes
        end = self._transfers.end(source.place, target.place, bytes_, sequence.scheduled_s, now)
        end += source.pool.options.handoff_s
        if source.adapters is not None and target.adapters is not None:
            source.adapters.leave(request.adapter)
            end = max(end, target.adapters.take(request.adapter, now))
        # A copy: the prefill replica still lists the sequence among those that it admitted.
        sequence = sequence.__copy__()
        sequence.output = request.output
        sequence.target = request.prompt + 1
        sequence.loaded = request.prompt
        sequence.computed = 0
        failures = target.failures
        target.coming += 1
        if self._looking.notes:
            self._looking.changed(target.index)
        self._at(end, lambda time: self.arrive(target, failures, sequence, time, 1))

    def arrive(self, target: Member, failures: int, sequence: Sequence, now: float, coming: int = 0) -> None:
        """Queue a sequence whose KV has arrived, unless the replica has failed since it was picked."""
        if target.failures == failures:
            target.coming -= coming
            self._submit(target, sequence, now)
        else:
            self._retry(sequence, now)

    def touch(self, member: Member) -> None:
        """Note that a replica's state or the end of its next step has changed."""
        self._looking.touch(member)

    def advance(self, member: Member, now: float) -> None:
        """Run the steps of a replica that end before a time."""
        if member.replica.next_s < now:
            member.replica.advance(now)
            self._looking.touch(member)

    # Failures and drains

    def lose(self, member: Member, now: float) -> None:
        """Fail a replica: its sequences are sent again to other replicas."""
        self.advance(member, now)
        lost = member.replica.sequences()
        member.up = False
        member.failures += 1
        member.coming = 0
        member.replica = self._builder.replica(member.pool, member.meter, member.rank)
        member.empty_adapters()
        self.close(member)
        self._looking.lost(member.index)
        for sequence in lost:
            self._retry(sequence, now)

    def restore(self, member: Member, now: float) -> None:
        """Let a failed replica take requests again."""
        member.up = True
        if member.drained_s is None:
            self.open(member, now)

    def close(self, member: Member) -> None:
        """Send a replica no more requests; it finishes its sequences."""
        for takers in (self.entry, self.decoding):
            if member in takers:
                takers.remove(member)
        self._looking.forget()

    def open(self, member: Member, now: float) -> None:
        """Send a replica requests again."""
        takers = self.decoding if member.decodes else self.entry
        if member not in takers:
            takers.append(member)
            takers.sort(key=lambda taker: taker.index)
        self._looking.forget()
        unplaced, self._unplaced = self._unplaced, []
        for sequence in unplaced:
            self._place(sequence, now)

    def _retry(self, lost: Sequence, now: float) -> None:
        """Send a lost request again, from its start, or give it up."""
        failures = self.setting.deployment.failures or Failures.model_validate({})
        request = lost.request
        if lost.retries >= failures.retries:
            self.failed += 1
            self._answered(request, now, lost=True)
            return
        self.retries += 1
        sequence = Sequence(request, now)
        sequence.retries = lost.retries + 1
        self._at(now + failures.retry_after, lambda time: self._place(sequence, time))

    def _member(self, pool: PoolSetting, rank: int) -> Member:
        costs = pool.costs
        meter = Meter(costs.steps, costs.kv_blocks * pool.pool.data, self._room)
        return Member(0, pool, self._builder.replica(pool, meter, rank), meter)
