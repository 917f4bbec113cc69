"""Clients whose next request waits for an answer: programs, closed loops, and users of an open loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from simulator.serving.workload.programs.base import Call, Calls
from simulator.serving.workload.request import Request
from simulator.serving.workload.source import Source

Send = Callable[[Request], bool]
"""Sends a request to the fleet; False where the request is longer than any replica holds."""
At = Callable[[float, Callable[[float], None]], None]
"""Calls a function at a time."""


@dataclass
class Branch:
    """A line of requests in a program: its generator, and the number of its running requests."""

    calls: Calls
    parent: Branch | None = None
    """The branch that waits for its end."""
    pending: int = 0


@dataclass
class RunningProgram:
    """A running program: the branch that it begins with."""

    root: Branch
    number: int
    priority: int
    turn: int = 0
    begin_s: float = 0.0
    lost: bool = False
    """Whether a request of it was refused or given up."""


class ProgramClients:
    """Programs of an open or closed loop; a closed loop's client starts another at the end of one.

    Args:
        source: draws programs.
        limit: requests of the run.
        send, at, later: of the fleet; ``later`` calls through the clock even at the present instant.
    """

    def __init__(self, source: Source, limit: int, send: Send, at: At, later: At) -> None:
        self._source, self._limit, self._send, self._at, self._later = source, limit, send, at, later
        arrivals = source.serving.arrivals
        self.closed = arrivals is not None and arrivals.closed
        self.scheduled = 0
        """Requests that programs have begun or scheduled."""
        self._within = source.serving.program.deadline or inf
        self.seconds: list[float] = []
        """Seconds of each program that ran to its end; inf where a request of it was lost."""
        self._begun = self._serial = 0
        self._running: dict[int, RunningProgram] = {}
        self._branches: dict[int, Branch] = {}
        """Branches of running requests by serial, where they are not the program's first."""
        self._calls: Iterator[Calls] = source.programs()
        self._priorities = source.priorities()

    @property
    def idle(self) -> bool:
        """Whether all programs of an open loop have ended."""
        return not self._running and not self.closed

    @property
    def done(self) -> bool:
        """Whether all requests of the run are sent or scheduled."""
        return self.scheduled >= self._limit

    def begin(self, now: float) -> None:
        """Start a program."""
        if self.done:
            return
        self._begun += 1
        program = RunningProgram(Branch(next(self._calls)), self._begun, next(self._priorities), begin_s=now)
        self._running[program.number] = program
        self._go_on(program, program.root, now)

    def ended(self, request: Request, now: float, lost: bool = False) -> None:
        """Handle the end of a request; the last one of a turn starts the next turn."""
        program = self._running[request.program]
        program.lost |= lost
        self._request_ended(program, self._branches.pop(request.serial, program.root), now)

    def _request_ended(self, program: RunningProgram, branch: Branch, now: float) -> None:
        branch.pending -= 1
        if branch.pending == 0:
            self._go_on(program, branch, now)

    def _go_on(self, program: RunningProgram, branch: Branch, now: float) -> None:
        """Send a branch's next requests; at the program's end, its client starts another one."""
        left = self._limit - self.scheduled
        calls = next(branch.calls, None) if left > 0 else None
        if calls is None and branch.parent is not None:
            branch.calls.close()
            self._request_ended(program, branch.parent, now)
            return
        if calls is None:
            if left > 0:
                self.seconds.append(inf if program.lost else now - program.begin_s)
            branch.calls.close()
            del self._running[program.number]
            if self.closed and left > 0:
                self._at(now + self._source.think(), self.begin)
            return
        calls = calls[:left]
        self.scheduled += len(calls)
        branch.pending = len(calls)
        for call in calls:
            self._at(now + call.after_s, lambda time, call=call: self._call(program, branch, call, time))
        program.turn += 1

    def _call(self, program: RunningProgram, branch: Branch, call: Call, now: float) -> None:
        if call.then is not None:
            branch = Branch(call.then, branch, pending=1)
        if branch is not program.root:
            self._branches[self._serial] = branch
        self._source.check(self._serial, call.prompt, call.output)
        lengths = call.prompt, call.output, call.prefix
        place = program.priority, program.number, program.turn - 1
        end = program.begin_s + self._within
        due = now + max(end - now, 0.0) * call.share if end < inf else inf
        request = Request(self._serial, now, *lengths, *place, due_s=due)
        self._serial += 1
        if not self._send(request):
            program.lost = True
            self._branches.pop(request.serial, None)
            # Through the clock: a direct call would recurse once for each consecutive refusal.
            self._later(now, lambda time: self._request_ended(program, branch, time))


class Users:
    """Users of an open loop: arrivals are dealt to them in turn, and each waits for its last answer.

    Args:
        users: number of users.
        gap: seconds from an answer to a user's next request that is due.
        send, later: of the fleet.
    """

    def __init__(self, users: int, gap: float, send: Send, later: At) -> None:
        self._users, self._gap, self._send_now, self._later = users, gap, send, later
        self._busy: set[int] = set()
        self._due: dict[int, deque[Request]] = {}

    def arrive(self, request: Request) -> None:
        """Send a request, or keep it until the answer that its user waits for."""
        user = request.serial % self._users
        if user in self._busy:
            self._due.setdefault(user, deque()).append(request)
        else:
            self._send(user, request)

    def ended(self, request: Request, now: float) -> None:
        """Handle an answer: the user's next request that is due is sent."""
        user = request.serial % self._users
        due = self._due.get(user)
        if due:
            following = due.popleft()
            self._later(now + self._gap, lambda time: self._send(user, following._replace(arrival_s=time)))
        else:
            self._busy.discard(user)

    def _send(self, user: int, request: Request) -> None:
        self._busy.add(user)
        if not self._send_now(request):
            self._later(request.arrival_s, lambda time: self.ended(request, time))
