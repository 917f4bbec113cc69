"""Rollouts take as long on the event engine as by the closed form, within 3 % and the rest of prompts."""

from pathlib import Path

from core.errors import InputError
from simulator.rl.drain import MORE_DRAWS, plain_steps, rollout_seconds
from simulator.rl.scenario import make_rl
from simulator.rl.step import predict_rl
from tests.laws.questions import Question, post_training, strategy

NUMBER = 82
QUESTIONS = strategy(post_training)
CI = 8
NEAR = 0.03
REST_S = 0.25
"""The engine shares prompts in spans of 128 tokens: each answer computes the rest of its prompt."""


def check(question: Question) -> None:
    """Time the rollouts of a step both ways."""
    setting = make_rl(question, "law", Path())
    steps = plain_steps(setting.rollouts)
    if steps is None:
        raise InputError("this engine has no closed form")
    closed = rollout_seconds(setting.rollouts, steps, setting.workload, draws=MORE_DRAWS)
    timed = predict_rl(setting).phases.generation
    assert abs(closed - timed) <= NEAR * timed + REST_S, (
        f"{closed:.4g} s by the closed form, {timed:.4g} on the engine"
    )
