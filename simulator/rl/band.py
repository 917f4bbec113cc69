"""The 90 % band of a step, from the errors of both of its halves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.rl.schedules import Phases
from simulator.rl.setting import RlSetting
from simulator.training.analytic import Step
from simulator.uncertainty.bands import NINETY, band
from simulator.uncertainty.servers import server_errors

OF_ROLLOUTS = ("generation", "busy_generation", "resume")
OF_TRAINER = ("scoring", "update")
RESIDUAL = 0.22
"""Standard deviation, as a share of a step, of errors that neither half has: host times, moves of weights,
lengths that are not known. Nine tenths of NeMo RL's steps, with constants of other models, lie in such bands
(benchmarks.rl_rows)."""


def halves(setting: RlSetting, trained: Step) -> tuple[float, float]:
    """Relative half-widths of the time of the trainer's passes and of the engine's steps, 90 %.

    The trainer's is that of a training step. The engine's is that of a server that was not measured: the
    error of its steps and the residual of its time per output token.

    Args:
        setting: the question.
        trained: the trainer's step.
    """
    updates = float(band(setting.trainer, trained)[0])
    errors = server_errors()
    served = NINETY * float(np.hypot(errors.tokens, errors.residual["tpot"]))
    return updates, served


def half_width(setting: RlSetting, phases: Phases, trained: Step) -> float:
    """Relative half-width of a step's 90 % band.

    Both halves err independently; each is made longer and shorter by its own half-width, and the schedule
    says what the step does. What is neither half's errs by `RESIDUAL`.
    """
    seconds = setting.schedule.timing(phases).seconds
    widths = []
    for names, width in zip((OF_TRAINER, OF_ROLLOUTS), halves(setting, trained), strict=True):
        ends = [
            setting.schedule.timing(
                replace(phases, **{name: factor * getattr(phases, name) for name in names})
            ).seconds
            for factor in (1 + width, 1 / (1 + width))
        ]
        widths.append((ends[0] - ends[1]) / 2)
    return float(np.hypot(np.hypot(*widths) / seconds, NINETY * RESIDUAL))
