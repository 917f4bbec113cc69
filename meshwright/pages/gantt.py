"""A timeline as a Gantt chart: one row per rank, computation above, communication below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from meshwright.pages.page import Figure, axis, figure_of
from meshwright.reports.parts import colour
from simulator.engine.graph import NONE
from simulator.engine.timeline import Timeline
from simulator.training.step_graph.streams import COMPUTE, CONTEXT, EXPERT, STREAMS, TENSOR

MOST_BLOCKS = 5_000
"""Maximum number of blocks drawn without delay; of longer steps only both ends are drawn."""
INNER = tuple(stream.name for stream in (TENSOR, CONTEXT, EXPERT))
"""Communication inside passes, left out first."""
MOST_NUMBERED = 400
"""Maximum number of blocks with labels of micro batches."""
MOST_RANKS = 64
FINEST_S = 1e-6
"""Length of the ticks in which blocks are placed; shorter in steps below a second."""

PASS_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "forward": "#4a90d9",
        "backward": "#2aa198",
        "weight gradient": "#9ad3a6",
        "output forward": "#b39ddb",
        "output weight gradient": "#d6c8ee",
    }
)
ONCE_COLOUR = "#6a51a3"
STREAM_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "tensor": colour("tensor"),
        "context": colour("context"),
        "expert": colour("expert"),
        "pipeline": "#f0a202",
        "data": colour("data parallel"),
        "output": colour("output layer sums"),
        "to host": "#7b8794",
        "from host": "#7b8794",
    }
)
COMPUTE_LANE, SEND_LANE = (0.08, 0.68), (0.72, 0.92)
"""Top and bottom of the two lanes of a rank's row, which is 1 high."""


class Bar(NamedTuple):
    """A run of tasks of one pass, or of one stream, of one micro batch."""

    kind: str
    rank: int
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True)
class Window:
    """Drawn part of a step: all of it, or both ends up to a length."""

    end: float
    length: float

    @property
    def complete(self) -> bool:
        """Whether the whole step is drawn."""
        return 2 * self.length >= self.end


def gantt(timeline: Timeline, names: Sequence[str]) -> tuple[Figure, Window]:
    """The chart, and the drawn part of the step.

    Args:
        timeline: the engine's run.
        names: of its ranks.
    """
    ranks = shown_ranks(timeline.ranks)
    rows = {rank: row for row, rank in enumerate(ranks)}
    passes = [block for rank in ranks for block in compute_blocks(timeline, rank)]
    sends = [block for rank in ranks for block in stream_blocks(timeline, rank)]
    if len(passes) + len(sends) > MOST_BLOCKS:
        sends = [block for block in sends if block.kind not in INNER]
    window = _window(timeline, passes + sends)
    panels = _panels(window)
    tick = min(FINEST_S, timeline.seconds / 1e6) or FINEST_S
    traces: list[dict[str, Any]] = []
    for number, (start, end) in enumerate(panels, 1):
        place = {"xaxis": f"x{number}"}
        blocks = [block for block in passes if start <= block.start and block.end <= end]
        traces += _traces(blocks, rows, COMPUTE_LANE, {**PASS_COLOURS, **_once(passes)}, place, tick)
        sent = [block for block in sends if start <= block.start and block.end <= end]
        traces += _traces(sent, rows, SEND_LANE, STREAM_COLOURS, place, tick)
        if len(passes) <= MOST_NUMBERED:
            traces.append(_numbers(blocks, rows))
    _name_once(traces)
    ticks = {
        "tickvals": [row + 0.5 for row in range(len(ranks))],
        "ticktext": [names[rank] for rank in ranks],
    }
    figure = figure_of(
        traces,
        height=int(np.clip(110 + 34 * len(ranks), 260, 1500)),
        hovermode="closest",
        hoverdistance=30,
        yaxis=axis(range=[len(ranks), 0], showgrid=False, **ticks),
        **_axes(panels),
    )
    return figure, window


def _name_once(traces: Sequence[dict[str, Any]]) -> None:
    """Show each kind in the legend once, by the first of its traces."""
    seen: set[str] = set()
    for trace in traces:
        trace["showlegend"] = "blocks" in trace and trace["name"] not in seen
        if trace["showlegend"]:
            seen.add(trace["name"])


def _panels(window: Window) -> list[tuple[float, float]]:
    """The intervals of the step drawn beside each other."""
    if window.complete:
        return [(0.0, window.end)]
    return [(0.0, window.length), (window.end - window.length, window.end)]


def _axes(panels: Sequence[tuple[float, float]]) -> dict[str, Any]:
    width = 1 / len(panels)
    return {
        f"xaxis{number + 1}": axis(
            "seconds" if len(panels) == 1 else ("its start, seconds", "its end, seconds")[number],
            range=list(panel),
            domain=[number * width + 0.01 * number, (number + 1) * width - 0.01 * (len(panels) - 1 - number)],
        )
        for number, panel in enumerate(panels)
    }


def shown_ranks(ranks: int) -> list[int]:
    """All ranks, or as many as a chart holds, the first and the last among them."""
    if ranks <= MOST_RANKS:
        return list(range(ranks))
    return sorted({round(value) for value in np.linspace(0, ranks - 1, MOST_RANKS)})


def compute_blocks(timeline: Timeline, rank: int) -> list[Bar]:
    """The passes of a rank: tasks that follow each other in one pass of one micro batch are one block."""
    graph, blocks = timeline.graph, list[Bar]()
    before = NONE
    for task in timeline.tasks(rank, COMPUTE).tolist():
        item, end = graph.item[task], float(timeline.ends[task])
        if item != NONE and item == before:
            blocks[-1] = blocks[-1]._replace(end=end)
        else:
            kind = graph.name[task] if item == NONE else graph.item_name[item]
            blocks.append(Bar(kind, rank, timeline.number(task), float(timeline.starts[task]), end))
        before = item
    return blocks


def stream_blocks(timeline: Timeline, rank: int) -> list[Bar]:
    """Communication of a rank, task by task."""
    return [
        Bar(stream.name, rank, value.number, value.start, value.end)
        for stream in STREAMS
        if stream is not COMPUTE
        for value in timeline.intervals(rank, stream)
    ]


def _once(blocks: Sequence[Bar]) -> dict[str, str]:
    names = dict.fromkeys(block.kind for block in blocks if block.kind not in PASS_COLOURS)
    return dict.fromkeys(names, ONCE_COLOUR)


def _window(timeline: Timeline, blocks: Sequence[Bar]) -> Window:
    end = timeline.seconds
    if len(blocks) <= MOST_BLOCKS:
        return Window(end, end)
    reach = np.sort([min(block.end, end - block.start) for block in blocks])
    return Window(end, float(reach[MOST_BLOCKS - 1]))


def _traces(
    blocks: Sequence[Bar],
    rows: Mapping[int, int],
    lane: tuple[float, float],
    colours: Mapping[str, str],
    place: Mapping[str, Any],
    tick: float,
) -> list[dict[str, Any]]:
    """One trace for each kind; ``draw.js`` makes its ``blocks`` rectangles and texts to hover.

    Times are whole ticks, starts relative to the block before: a tenth of the bytes of drawn paths.
    """
    traces: list[dict[str, Any]] = []
    for kind, fill in colours.items():
        of_kind = [block for block in blocks if block.kind == kind]
        if not of_kind:
            continue
        starts = np.array([block.start for block in of_kind])
        lengths = np.array([block.end for block in of_kind]) - starts
        drawn = {
            "tick": tick,
            "lane": lane,
            "start": np.diff(np.rint(starts / tick).astype(np.int64), prepend=0).tolist(),
            "length": np.rint(lengths / tick).astype(np.int64).tolist(),
            "row": [rows[block.rank] for block in of_kind],
        }
        if of_kind[0].micro_batch >= 0:
            drawn["micro_batch"] = [block.micro_batch for block in of_kind]
        traces.append({"type": "scatter", "mode": "lines", "name": kind, "legendgroup": kind, **place})
        traces[-1] |= {"fillcolor": fill, "blocks": drawn}
    return traces


def _numbers(blocks: Sequence[Bar], rows: Mapping[int, int]) -> dict[str, Any]:
    numbered = [block for block in blocks if block.micro_batch >= 0]
    return {
        "type": "scatter",
        "mode": "text",
        "x": [round((block.start + block.end) / 2, 6) for block in numbered],
        "y": [rows[block.rank] + sum(COMPUTE_LANE) / 2 for block in numbered],
        "text": [str(block.micro_batch) for block in numbered],
        "textfont": {"size": 10, "color": "#ffffff"},
        "hoverinfo": "skip",
    }
