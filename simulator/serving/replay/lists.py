"""What lists have built in, and the same written out for arrays: heaps of ends, and rows of steps.

The keys of a heap are whole numbers and differ, so that the order in which they leave does not depend on
its form.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from simulator.serving.replay.kernels import kernel
from simulator.serving.replay.layout import ROW_COUNT

WIDTH = 11
"""Numbers of a row, as `Totals.add` takes them."""
WRITTEN_OUT = {
    "least": "least_of_array",
    "push": "push_on_array",
    "pop": "pop_of_array",
    "drop": "drop_from_array",
    "put_row": "put_row_in_array",
    "cell": "cell_of_array",
}
"""Kernels for lists, and those that stand for them where the columns are arrays."""


@kernel
def least(heaps: Any, lane: int, room: int) -> int:
    """The least key of a lane's heap, -1 where it is empty.

    Args:
        heaps: a list a lane; as an array, ``room`` numbers a lane, of which the first counts the keys.
        lane, room: as above.
    """
    heap = heaps[lane]
    return heap[0] if heap else -1


@kernel
def push(heaps: Any, lane: int, room: int, key: int) -> None:
    """Add a key."""
    heappush(heaps[lane], key)


@kernel
def pop(heaps: Any, lane: int, room: int) -> None:
    """Take the least key out."""
    heappop(heaps[lane])


@kernel
def drop(heaps: Any, lane: int, room: int, key: int) -> None:
    """Take a key out."""
    heaps[lane].remove(key)
    heapify(heaps[lane])


@kernel
def least_of_array(heaps: Any, lane: int, room: int) -> int:
    """See `least`."""
    return heaps[lane * room + 1] if heaps[lane * room] else -1


@kernel
def push_on_array(heaps: Any, lane: int, room: int, key: int) -> None:
    """See `push`."""
    first = lane * room
    heaps[first] += 1
    at = heaps[first]
    while at > 1 and heaps[first + at // 2] > key:
        heaps[first + at] = heaps[first + at // 2]
        at //= 2
    heaps[first + at] = key


@kernel
def pop_of_array(heaps: Any, lane: int, room: int) -> None:
    """See `pop`."""
    first = lane * room
    count = heaps[first] - 1
    key, at = heaps[first + count + 1], 1
    heaps[first] = count
    while 2 * at <= count:
        below = 2 * at
        if below < count and heaps[first + below + 1] < heaps[first + below]:
            below += 1
        if heaps[first + below] >= key:
            break
        heaps[first + at] = heaps[first + below]
        at = below
    heaps[first + at] = key


@kernel
def drop_from_array(heaps: Any, lane: int, room: int, key: int) -> None:
    """See `drop`: the key rises to the top and leaves."""
    first, at = lane * room, 1
    while heaps[first + at] != key:
        at += 1
    while at > 1:
        heaps[first + at] = heaps[first + at // 2]
        at //= 2
    pop_of_array(heaps, lane, room)


@kernel
def put_row(
    rows: Any,
    ints: Any,
    start: float,
    end: float,
    since: float,
    count: int,
    decodes: int,
    kv_tokens: int,
    prompt: int,
    firsts: int,
    running: int,
    waiting: int,
    free: int,
) -> None:
    """Keep a row of a step or stretch; the numbers are those of `Totals.add`, with free blocks at the end."""
    rows += (start, end, since, count, decodes, kv_tokens, prompt, firsts, running, waiting, free)
    ints[ROW_COUNT] += 1


@kernel
def put_row_in_array(
    rows: Any,
    ints: Any,
    start: float,
    end: float,
    since: float,
    count: int,
    decodes: int,
    kv_tokens: int,
    prompt: int,
    firsts: int,
    running: int,
    waiting: int,
    free: int,
) -> None:
    """See `put_row`."""
    at = ints[ROW_COUNT] * WIDTH
    ints[ROW_COUNT] += 1
    rows[at] = start
    rows[at + 1] = end
    rows[at + 2] = since
    rows[at + 3] = count
    rows[at + 4] = decodes
    rows[at + 5] = kv_tokens
    rows[at + 6] = prompt
    rows[at + 7] = firsts
    rows[at + 8] = running
    rows[at + 9] = waiting
    rows[at + 10] = free


@kernel
def cell(rows: Any, row: int, column: int) -> Any:
    """A number of a row of columns: arrays make no view of the row."""
    return rows[row][column]


@kernel
def cell_of_array(rows: Any, row: int, column: int) -> Any:
    """See `cell`."""
    return rows[row, column]
