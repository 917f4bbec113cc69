"""A workload as a stream of requests, drawn from seeded generators in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, islice, repeat
from math import inf
from pathlib import Path

import numpy as np

from core.errors import InputError
from simulator.serving.workload.arrivals.base import BLOCK, Arrivals
from simulator.serving.workload.programs import SPAN
from simulator.serving.workload.programs.base import Calls
from simulator.serving.workload.programs.single import Single
from simulator.serving.workload.recorded import replayed
from simulator.serving.workload.request import Request
from simulator.serving.workload.request_columns import RequestColumns
from simulator.serving.workload.serving import Chunks, Serving
from simulator.serving.workload.traces import TraceRow, get_format

LATEST_S = 1e9
"""Of a trace; 30 years. A later time was probably given in milliseconds, or as a date."""
READ = 1 << 16
"""Rows of a trace that become arrays together."""
EMPTY = [np.zeros(0), *[np.zeros(0, np.int64)] * 5]
FRESH = 1 << 40
"""First prefix id that is used once only; below are system prompts and the ids of traces."""


class Source:
    """The requests of a workload.

    Args:
        serving: the workload.
        seed: seed of all draws.
        folder: base of the trace's relative path.
        longest: maximum tokens of a prompt with its output.
        where: key path of the workload, for errors.
        images: tokens of a request's images, which drawn lengths do not count.

    Raises:
        InputError: the trace cannot be read.
    """

    def __init__(
        self,
        serving: Serving,
        seed: int,
        folder: Path,
        longest: int,
        where: str = "workload",
        images: int = 0,
    ) -> None:
        self._images = images
        self.serving, self.longest, self.where = serving, longest, where
        streams = np.random.SeedSequence(seed).spawn(6)
        streams = map(np.random.default_rng, streams)
        self._arrivals, self._lengths, self._groups, self._programs, self._urgency, self._documents = streams
        self._path = folder / serving.trace.path if serving.trace else None
        self._fresh = FRESH
        form = get_format(serving.trace.format) if serving.trace else None
        self._sessions = form.sessions if form else None
        self.prefix_tokens = form.prefix_tokens if form and form.prefix_tokens else SPAN
        """Tokens that a prefix id stands for."""

    @property
    def shares_prefixes(self) -> bool:
        """Whether requests have prefix ids."""
        form = get_format(self.serving.trace.format) if self.serving.trace else None
        with_ids = form is not None and form.prefix_tokens > 0
        return with_ids or self.serving.prefix is not None or not isinstance(self.serving.program, Single)

    @cached_property
    def feeds_back(self) -> bool:
        """Whether completions decide when requests arrive."""
        arrivals = self.serving.arrivals
        follow = self._sessions is not None or not isinstance(self.serving.program, Single)
        return (arrivals is not None and arrivals.closed) or follow

    def requests(self) -> Iterator[Request]:
        """Yield all requests of an open loop in order of arrival.

        Raises:
            InputError: a wrong row of the trace, or a request longer than the model's context.
        """
        rows, within = self._rows(), self.serving.program.deadline or inf
        longest, priorities, chunks = self.longest, self.priorities(), self._chunks()
        for serial, (time, prompt, output, prefix, cached) in enumerate(islice(rows, self.serving.requests)):
            if prompt + output > longest:
                self.check(serial, prompt, output)
            urgency, documents = next(priorities), () if chunks is None else next(chunks)
            # By position: names cost as much as the rest of the request. No program, turn and adapter.
            due_s = time + within
            yield Request(serial, time, prompt, output, prefix, urgency, -1, 0, cached, -1, documents, due_s)

    def columns(self) -> RequestColumns:
        """All requests of an open loop as arrays; documents are left out.

        Raises:
            InputError: see `requests`.
        """
        law = self.serving.arrivals if self.serving.trace is None else None
        columns = self._read_columns() if law is None else self._drawn_columns(law)
        arrival, prompt, output, cached, *prefixes = columns
        long = np.flatnonzero(prompt + output > self.longest)
        if len(long):
            self.check(int(long[0]), int(prompt[long[0]]), int(output[long[0]]))
        serial = np.arange(len(arrival))
        priority = np.fromiter(self.priorities(), np.int64, len(arrival))
        return RequestColumns(arrival, serial, prompt, output, priority, cached, *prefixes)

    def _drawn_columns(self, law: Arrivals) -> list[np.ndarray]:
        """Columns of ``_rows`` without a trace; prefixes of one group share their ids."""
        requests, prefix = self.serving.requests, self.serving.prefix
        arrival = np.fromiter(islice(law.times(self._arrivals), requests), np.float64)
        blocks = range(0, len(arrival), BLOCK)
        lengths = [*islice(self._drawn_blocks(), len(blocks)), (np.zeros(0, np.int64),) * 2]
        prompt, output = (np.concatenate(parts)[: len(arrival)] for parts in zip(*lengths, strict=True))
        none = np.zeros(len(arrival), np.int64)
        if prefix is None:
            return [arrival, prompt, output, none, none, none, none[:0]]
        drawn = [self._groups.integers(0, prefix.groups, BLOCK) for _ in blocks]
        groups, number = np.unique(np.concatenate([none[:0], *drawn])[: len(arrival)], return_inverse=True)
        spans = prefix.tokens // self.prefix_tokens
        ids = (groups[:, np.newaxis] * spans + np.arange(spans)).ravel()
        return [arrival, prompt, output, none, number * spans, none + spans, ids]

    def _read_columns(self) -> list[np.ndarray]:
        """Columns of ``_rows`` with a trace."""
        rows, blocks = islice(self._rows(), self.serving.requests), [EMPTY]
        while block := list(islice(rows, READ)):
            arrival, prompt, output, prefix, cached = zip(*block, strict=True)
            ids = np.fromiter(map(len, prefix), np.int64, len(block))
            prefixes = np.fromiter(chain.from_iterable(prefix), np.int64, int(ids.sum()))
            numbers = np.array([prompt, output, cached], np.int64)
            blocks.append([np.array(arrival, np.float64), *numbers, ids, prefixes])
        *columns, ids, prefixes = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return [*columns, np.cumsum(ids) - ids, ids, prefixes]

    def _chunks(self) -> Iterator[tuple[int, ...]] | None:
        """Yields the documents of each prompt; None where prompts have none."""
        chunks = self.serving.chunks
        return None if chunks is None else self._picked(chunks)

    def _picked(self, chunks: Chunks) -> Iterator[tuple[int, ...]]:
        shares = np.arange(1.0, chunks.documents + 1.0) ** -chunks.zipf
        shares /= shares.sum()
        while True:
            drawn = self._documents.choice(chunks.documents, (BLOCK, chunks.per_prompt), p=shares)
            yield from map(tuple, drawn.tolist())

    def starts(self) -> Iterator[float]:
        """Yield start times of programs, s; in a closed loop, start times of the clients."""
        arrivals = self.serving.arrivals
        if arrivals is not None:
            return arrivals.times(self._arrivals)
        return (row.arrival_s for row in self._trace())

    def programs(self) -> Iterator[Calls]:
        """Yield programs to run, each as a generator of the requests that it sends."""
        if self._sessions is not None and self._path is not None:
            yield from replayed(self._sessions, self._path, self.fresh, self._longest_wait)
            return
        rows = self._lengths_of_rows()
        groups = self._prefixes()

        while True:
            prefix = next(groups)

            def draw() -> tuple[int, int]:
                row = next(rows, None)
                if row is None:
                    raise InputError(
                        "the trace ends before the programs; ask for fewer requests, or give a longer trace",
                        self.where,
                    )
                return row

            yield self.serving.program.calls(draw, self.fresh, prefix, self._programs)

    @property
    def _longest_wait(self) -> float:
        trace = self.serving.trace
        return inf if trace is None or trace.longest_wait is None else trace.longest_wait

    def priorities(self) -> Iterator[int]:
        """Yield the priority of each request."""
        shares = np.array(self.serving.priorities)
        if not shares.any():
            yield from repeat(0)
        while True:
            yield from self._urgency.choice(len(shares), BLOCK, p=shares / shares.sum()).tolist()

    def fresh(self, count: int) -> tuple[int, ...]:
        """Unused prefix ids."""
        first = self._fresh
        self._fresh += max(count, 0)
        return tuple(range(first, self._fresh))

    def think(self) -> float:
        """Seconds between a closed-loop client's programs."""
        mean, gap = (getattr(self.serving.arrivals, name, 0.0) for name in ("think", "gap"))
        return gap + float(self._programs.exponential(mean)) if mean else gap

    def check(self, serial: int, prompt: int, output: int) -> None:
        """Refuse a request that is longer than the model's context.

        Raises:
            InputError: the request is longer.
        """
        if prompt + output > self.longest:
            raise InputError(
                f"request {serial} has {prompt:,} + {output:,} tokens, more than the context of "
                f"{self.longest:,}; shorten it, or set deployment.options.max_context",
                self.where,
            )

    def _rows(self) -> Iterator[tuple[float, int, int, tuple[int, ...], int]]:
        """Time, prompt, output, prefix and known hits of requests: the trace's own, or drawn."""
        if self.serving.arrivals is None:
            yield from ((*row[:4], row.cached) for row in self._trace())
            return
        times, groups = self.serving.arrivals.times(self._arrivals), self._prefixes()
        if self.serving.trace is not None:
            yield from (
                (next(times), row.prompt, row.output, row.prefix, row.cached) for row in self._trace()
            )
            return
        for time, (prompt, output), prefix in zip(times, self._drawn(), groups, strict=False):
            yield time, prompt, output, prefix, 0

    def _lengths_of_rows(self) -> Iterator[tuple[int, int]]:
        if self.serving.trace is not None:
            return ((row.prompt, row.output) for row in self._trace())
        return self._drawn()

    def _drawn(self) -> Iterator[tuple[int, int]]:
        for prompts, outputs in self._drawn_blocks():
            yield from zip(prompts.tolist(), outputs.tolist(), strict=True)

    def _drawn_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Prompts and outputs, ``BLOCK`` of them at a time."""
        first = self._images + (self.serving.prefix.tokens if self.serving.prefix else 0)
        if self.serving.chunks is not None:
            first += self.serving.chunks.per_prompt * self.serving.chunks.tokens
        inputs, outputs = self.serving.input, self.serving.output
        while inputs is not None and outputs is not None:
            prompts = inputs.draw(self._lengths, BLOCK) + first
            yield prompts, outputs.draw(self._lengths, BLOCK)

    def _prefixes(self) -> Iterator[tuple[int, ...]]:
        prefix = self.serving.prefix
        if prefix is None:
            yield from repeat(())
            return
        spans = prefix.tokens // self.prefix_tokens
        ids: dict[int, tuple[int, ...]] = {}
        while True:
            for group in self._groups.integers(0, prefix.groups, BLOCK).tolist():
                if group not in ids:
                    ids[group] = tuple(range(group * spans, (group + 1) * spans))
                yield ids[group]

    def _trace(self) -> Iterator[TraceRow]:
        """Rows of the trace, if any, from its start on, rescaled in rate; checked to be in order."""
        trace = self.serving.trace
        if trace is None or self._path is None:
            return
        last, read = 0.0, get_format(trace.format).read
        changed = trace.start > 0.0 or trace.rate_scale != 1.0
        for number, row in enumerate(read(self._path), start=1):
            time = row[0]
            if time < last or time > LATEST_S:
                wrong = f"before the one above it ({last:g} s)" if time >= 0 else "before the first"
                if time > LATEST_S:
                    wrong = f"after {LATEST_S:g} s; is the time in another unit?"
                raise InputError(
                    f"request {number} arrives at {time:g} s, {wrong}; sort the trace by time"
                    if time < last
                    else f"request {number} arrives at {time:g} s, {wrong}",
                    row.where or str(self._path),
                )
            last = time if time == time else last
            if not changed:
                yield row
            elif not time < trace.start:
                yield row._replace(arrival_s=(time - trace.start) / trace.rate_scale)
