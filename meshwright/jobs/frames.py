"""Frames a second of simulators with a small policy."""

from __future__ import annotations

from types import MappingProxyType

from meshwright.jobs import alone
from meshwright.jobs.base import AskOptions, Question

FIGURES = MappingProxyType(
    {
        "frames/s": lambda report: f"{report['frames_per_s']:,.0f}",
        "decides": lambda report: report["binding"],
    }
)
"""Columns of a comparison, beside the step."""


def answer(question: Question, terms: AskOptions) -> alone.LoneAnswer:
    """The predicted rates.

    Raises:
        InputError: a wrong scenario.
    """
    from meshwright.reports.frames import describe_frames, frames_tables
    from simulator.frames.question import make_frames
    from simulator.frames.rates import predict_frames

    return alone.LoneAnswer(predict_frames(make_frames(*question)), describe_frames, frames_tables)


JOB = alone.job("frames", "cycles", answer, FIGURES, "there is no search of layouts of simulators")
