"""Pipeline schedules, one a file, found by name in ``schedules``."""

from __future__ import annotations

from types import MappingProxyType

from core.errors import named
from simulator.schedules.base import PipelineTimes, Route, Schedule, Task, WorkTimes
from simulator.schedules.bitpipe import BitPipe
from simulator.schedules.breadth_first import BreadthFirst
from simulator.schedules.chimera import Chimera
from simulator.schedules.dualpipe import DualPipe
from simulator.schedules.gpipe import GPipe
from simulator.schedules.hanayo import Hanayo
from simulator.schedules.interlaced import InterlacedVocabulary
from simulator.schedules.interleaved import Interleaved
from simulator.schedules.one_f_one_b import OneFOneB
from simulator.schedules.pipeoffload import PipeOffload
from simulator.schedules.two_bp import TwoStageBackward
from simulator.schedules.v_half import VHalf
from simulator.schedules.vocabulary_parallel import VocabularyParallel1F1B, VocabularyParallelVHalf
from simulator.schedules.zb_auto import ZeroBubbleAuto
from simulator.schedules.zb_h1 import ZeroBubbleH1
from simulator.schedules.zb_h2 import ZeroBubbleH2
from simulator.schedules.zb_v import ZeroBubbleV
from simulator.schedules.zeropp import ZeroPP

__all__ = ["PipelineTimes", "Route", "Schedule", "Task", "WorkTimes", "get_schedule", "schedules"]

schedules = MappingProxyType(
    {
        schedule.name: schedule
        for schedule in (
            GPipe(),
            OneFOneB(),
            Interleaved(),
            BreadthFirst(),
            Hanayo(),
            Chimera(),
            BitPipe(),
            DualPipe(),
            ZeroBubbleH1(),
            ZeroBubbleH2(),
            ZeroBubbleV(),
            ZeroBubbleAuto("zb-auto", 1.0),
            ZeroBubbleAuto("zb-1p", 1.0),
            ZeroBubbleAuto("zb-2p", 2.0),
            TwoStageBackward(),
            ZeroPP(),
            PipeOffload("pipeoffload", 0.5),
            PipeOffload("pipeoffload-full", 1.0),
            VHalf(),
            VocabularyParallel1F1B("vocab-1f1b", 1),
            VocabularyParallel1F1B("vocab-1f1b-2", 2),
            VocabularyParallelVHalf(),
            InterlacedVocabulary(),
        )
    }
)


def get_schedule(name: str, where: str = "") -> Schedule:
    """The schedule of that name.

    Raises:
        UnknownNameError: there is none (the nearest name is offered).
    """
    return named("schedule", name, schedules, where)
