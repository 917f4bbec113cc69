"""What a detector of stragglers must find to pay for itself.

Evicting a straggler costs a planned restart: a save, a replacement, communicators and loading. A step that
takes ``f`` times as long loses ``1 - 1/f`` of the time, so that eviction pays where what is left of the
straggler loses more than the restart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.records import record
from simulator.runs.inputs import RunInputs
from simulator.runs.question import TimedStraggler


@record()
class DetectorValue:
    """One straggler and the detector that would find it.

    Attributes:
        straggler: its number in ``run.stragglers``.
        factor: time of a step with it over that of a healthy one.
        lasts_s: seconds that it lasts without a detector.
        found_s: seconds until the scenario's detector finds it; 0 without one.
        restart_s: seconds of the restart that evicts it.
        saves_s: seconds of training that its eviction gains; below 0: it costs more.
        least_factor: the least factor at which eviction pays, as long as it lasts; infinite: none does.
        least_lasts_s: the shortest straggler of this factor that pays; infinite: none does.
    """

    straggler: int
    factor: float
    lasts_s: float
    found_s: float
    restart_s: float
    saves_s: float
    least_factor: float
    least_lasts_s: float


def detector_values(inputs: RunInputs, stragglers: Sequence[TimedStraggler]) -> list[DetectorValue]:
    """The value of finding each straggler of a run."""
    means = inputs.means() if inputs.faults.processes else {}
    restart = inputs.stall_s + sum(means.get(name, 0.0) for name in ("replace", "initialise", "load"))
    values = []
    for number, straggler in enumerate(stragglers):
        factor = max((each.factor for each in inputs.slow if each.straggler == number), default=1.0)
        end = inputs.work_s if straggler.until is None else min(straggler.until, inputs.work_s)
        lasts, delay = max(end - straggler.from_, 0.0), straggler.detected or 0.0
        left, lost = max(lasts - delay, 0.0), 1 - 1 / factor
        values.append(
            DetectorValue(
                straggler=number,
                factor=factor,
                lasts_s=lasts,
                found_s=delay,
                restart_s=restart,
                saves_s=left * lost - restart,
                least_factor=1 / (1 - restart / left) if left > restart else math.inf,
                least_lasts_s=delay + restart / lost if lost > 0 else math.inf,
            )
        )
    return values
