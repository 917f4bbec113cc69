"""Steady states beside the event engine in short rooms: ``python -m benchmarks.serving_rooms``.

    python -m benchmarks.serving_rooms [--engine vllm-0.19] [--share 0.6 --share 0.85] [--tokens] [--rows]

The grid is engines x lengths x rooms. A room is the KV blocks of one replica, as a number of whole requests;
with ``--tokens``, the tokens of its steps, which hold as many sequences.
Clients that always wait say what the event engine carries at most. Printed are the steady state's largest
stable rate over it, and its mean end-to-end time over the engine's at shares of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from evidence.command import command
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting
from simulator.serving.steady.steady import Limits, Load, steady_state
from simulator.serving.workload.arrivals.poisson import Poisson

ENGINES = ("vllm-0.19", "sglang-0.5.12", "tensorrt-llm-1.2")
LENGTHS = ((100, 300), (700, 300), (1000, 1000), (2000, 100))
"""Prompt and output tokens."""
ROOMS = 1.5, 2.5, 4, 8, 16, 32
TOKENS = 128, 256, 512
REQUESTS, WARM_UP = 1500, 0.2
RATES = np.linspace(0.01, 2.0, 200)
"""Rates tried for the largest stable one, over what the event engine carries."""


@dataclass(frozen=True)
class Room:
    """One cell of the grid.

    Attributes:
        words: engine, lengths and room.
        capacity: largest stable rate of the steady state over the engine's throughput, - 1.
        preempted: preemptions of a request where clients always wait.
        times: mean end-to-end time of the steady state over the engine's, - 1, at each share.
    """

    words: str
    capacity: float
    preempted: float
    times: tuple[float, ...]


def deployment(engine: str, prompt: int, output: int, clients: int, **options: Any) -> ServingSetting:
    """One replica under clients that always wait."""
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": max(REQUESTS, 8 * clients),
            "arrivals": {"kind": "closed", "concurrency": clients},
            "input": prompt,
            "output": output,
        },
        "deployment": {"engine": engine, "options": {"max_sequences": 512, "max_context": 8192, **options}},
    }
    return make_serving(data, "room", Path())


def cell(engine: str, lengths: tuple[int, int], room: float, shares: tuple[float, ...]) -> Room:
    """Compare a replica whose KV blocks hold ``room`` whole requests."""
    clients = int(3 * room) + 2
    tokens = deployment(engine, *lengths, clients).pools[0].options.block_tokens
    blocks = ceil(room * sum(lengths) / tokens)
    words = f"{engine:17} {lengths[0]:5} + {lengths[1]:<5} room of {room:4g}"
    return _compared(words, deployment(engine, *lengths, clients, kv_blocks=blocks), lengths, shares)


def token_cell(engine: str, lengths: tuple[int, int], tokens: int, shares: tuple[float, ...]) -> Room:
    """Compare a replica whose steps have as many tokens as sequences."""
    setting = deployment(engine, *lengths, 2 * tokens, token_budget=tokens, max_sequences=tokens)
    words = f"{engine:17} {lengths[0]:5} + {lengths[1]:<5} {tokens:4} tokens and sequences"
    return _compared(words, setting, lengths, shares)


def _compared(
    words: str, setting: ServingSetting, lengths: tuple[int, int], shares: tuple[float, ...]
) -> Room:
    pool = setting.pools[0]
    table: Any = pool.costs.steps
    limits = Limits(
        pool.options.token_budget,
        pool.options.max_sequences,
        pool.costs.kv_blocks * pool.options.block_tokens,
    )
    columns = _columns(setting, setting.serving.arrivals)
    first = int(WARM_UP * len(columns["last_s"]))
    ends = np.sort(columns["last_s"])[first:-first]
    carried = (len(ends) - 1) / float(ends[-1] - ends[0])
    rates = carried * RATES
    stable = steady_state(table, Load(*lengths, rate=rates), limits).stable
    state = steady_state(table, Load(*lengths, rate=carried * np.array(shares)), limits)
    times = []
    for share, seconds in zip(shares, np.where(state.stable, state.e2e_s, inf), strict=True):
        run = _columns(setting, Poisson(rate=share * carried))
        times.append(float(seconds / (run["last_s"] - run["arrival_s"])[first:].mean()) - 1)
    largest = float(np.max(rates[stable], initial=0.0))
    return Room(words, largest / carried - 1.0, float(columns["preemptions"].mean()), tuple(times))


def _columns(setting: ServingSetting, arrivals: Any) -> Mapping[str, Any]:
    serving = setting.serving.model_copy(update={"arrivals": arrivals})
    return serve(replace(setting, serving=serving)).records.columns()


def grid(engines: tuple[str, ...], shares: tuple[float, ...], tokens: bool = False) -> Iterator[Room]:
    """All cells, one after another."""
    if tokens:
        yield from (token_cell(*place, shares) for place in product(engines, LENGTHS, TOKENS))
    else:
        yield from (cell(*place, shares) for place in product(engines, LENGTHS, ROOMS))


@command
def main(
    *,
    engine: Annotated[Sequence[str] | None, ENGINES] = None,
    share: Annotated[Sequence[float] | None, "of the throughput"] = None,
    tokens: Annotated[bool, "rooms of tokens in place of KV"] = False,
    rows: Annotated[bool, "print every cell"] = False,
) -> None:
    """Print the sums, and the cells where asked for."""
    shares = tuple(share or (0.6, 0.85))
    cells = []
    for row in grid(tuple(engine or ENGINES), shares, tokens):
        cells.append(row)
        if rows:
            times = " ".join(f"{time:+7.1%}" for time in row.times)
            print(f"{row.words}: capacity {row.capacity:+6.1%}, time {times}, preempted {row.preempted:.2f}")
    figures = {"largest rate": np.array([row.capacity for row in cells])}
    for number, each in enumerate(shares):
        figures[f"time at {each:.0%}"] = np.array([row.times[number] for row in cells])
    for name, values in figures.items():
        off = np.abs(values)
        tail = np.quantile(off, 0.95, method="higher")
        print(
            f"{len(cells)} rooms, {name}: median distance {np.median(off):.1%}, 95th percentile {tail:.1%}, "
            f"worst {off.max():.1%}, bias {np.median(values):+.1%}"
        )
