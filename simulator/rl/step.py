"""One step of post-training: seconds by phase, and the time of a step under its schedule."""

from __future__ import annotations

import math

import numpy as np

from core.errors import InputError
from core.records import record
from simulator.ops.counts import model_parameters
from simulator.plan import Plans
from simulator.rl.band import half_width
from simulator.rl.drain import (
    DRAWS,
    MORE_DRAWS,
    added_seconds,
    engine_over_closed,
    plain_steps,
    prompt_queue,
    resume_seconds,
    rollout_seconds,
)
from simulator.rl.lanes import LaneSegment, lanes
from simulator.rl.memory import RlMemory, step_memory
from simulator.rl.prompt_queue import PromptQueue
from simulator.rl.schedules import Phases, RlTiming
from simulator.rl.setting import RlSetting
from simulator.rl.weights import Receivers, WeightMove, gathered_tokens_s, weight_move
from simulator.serving.result import serve
from simulator.training import predict
from simulator.training.forward import forward_seconds


@record()
class RlStep:
    """A predicted step.

    Attributes:
        setting: the question.
        phases: seconds of each phase.
        timing: seconds of the step, and idle shares by role.
        passes: seconds of the forward passes over the answers, by the model that makes them.
        move: seconds of the parts of the move of weights.
        half_width: of the 90 % band of the step's seconds, as a share of them.
        memory: of a device in both halves.
        cores: of a node, with which calls of environments keep up with rollouts; None without such calls.
    """

    setting: RlSetting
    phases: Phases
    timing: RlTiming
    passes: dict[str, float]
    move: WeightMove
    half_width: float
    memory: RlMemory
    cores: float | None

    @property
    def tokens(self) -> float:
        """Tokens of prompts and answers that a step trains on."""
        return self.setting.workload.answers * self.setting.workload.mean

    @property
    def usd(self) -> float:
        """Price of a step at the devices' list price."""
        return self.setting.cluster.price_per_hour_usd * self.timing.seconds / 3600

    @property
    def tokens_per_s_per_device(self) -> float:
        """Tokens of prompts and answers a second and device."""
        return self.tokens / self.timing.seconds / self.setting.cluster.devices


def predict_rl(setting: RlSetting, engine: bool = True) -> RlStep:
    """Predict one step in the steady state.

    Args:
        setting: the question.
        engine: time rollouts on the event engine, not by the closed form where that covers them.
    """
    work, plans = setting.workload, Plans.of(setting.plan)
    scoring, scoring_plans = setting.scoring[0], Plans.of(setting.scoring[1])
    scorers = {"policy": scoring} if setting.algorithm.old_log_probs else {}
    scorers |= setting.scorers
    by_model = {id(each.model): each for each in scorers.values()}
    seconds_of = {key: float(forward_seconds(each, scoring_plans)[0]) for key, each in by_model.items()}
    passes = {role: seconds_of[id(each.model)] for role, each in scorers.items()}
    trained = predict(setting.trainer, plans)
    critic = None if setting.critic is None else predict(setting.critic, plans)
    update = float(trained.time[0]) + (0.0 if critic is None else float(critic.time[0]))
    burst, added = _rollouts(setting, engine)
    rollouts = max(burst, _gathered_tokens(setting))
    generation, served = _with_calls(setting, rollouts, 1)
    more, _ = _with_calls(setting, rollouts + added, 2)
    move, memory = _weights(setting), step_memory(setting, trained, critic)
    busy = min(max(more - generation, 0.0), generation)
    queue = _queue(setting, busy)
    phases = Phases(
        generation=generation,
        busy_generation=busy,
        scoring=sum(passes.values()),
        update=work.updates * update,
        weights=move.seconds,
        state=_state(setting, memory),
        host=setting.host_s,
        resume=_resume(setting, queue),
        batches=work.answers // (work.mini_batch or work.answers),
        environment=served,
        queue=queue,
    )
    return RlStep(
        *(setting, phases, setting.schedule.timing(phases), passes, move),
        half_width=half_width(setting, phases, trained),
        memory=memory,
        cores=_cores(setting, rollouts, served),
    )


def step_lanes(step: RlStep) -> list[LaneSegment]:
    """What the devices of each role do in a step of the steady state."""
    schedule = step.setting.schedule
    return lanes(step.phases, step.timing, schedule.split, schedule.beside)


def _rollouts(setting: RlSetting, engine: bool) -> tuple[float, float]:
    """Seconds of a step's rollouts, mean over bursts, and those that answers of one more step add.

    A burst ends with the last token of its longest answer.
    """
    both, work = (setting.rollouts, setting.more_rollouts), setting.workload
    steps = plain_steps(setting.rollouts)
    if steps is None:
        first_s, both_s = (float(serve(each).records.columns()["last_s"].max()) for each in both)
        return first_s, both_s - first_s
    draws, factor = DRAWS, 1.0
    if engine:
        draws = MORE_DRAWS
        factor = engine_over_closed(both[0], steps, work, serve(both[0]).records.columns())
    burst = rollout_seconds(both[0], steps, work, draws=draws)
    return factor * burst, factor * added_seconds(both, steps, work, draws)


def _gathered_tokens(setting: RlSetting) -> float:
    """Seconds of gathers of weights for every token of a step's batches, up to the longest answer."""
    if not setting.transfer.every_token:
        return 0.0
    served, work = setting.rollouts.pools[0], setting.workload
    at_once = served.options.max_sequences * setting.replicas
    batches = math.ceil(work.answers * work.sampled / at_once)
    return gathered_tokens_s(setting.trainer, setting.plan, batches * work.output.longest())


def _queue(setting: RlSetting, busy_s: float) -> PromptQueue | None:
    """Rollouts prompt by prompt, where the schedule takes them so and the engine has a closed form."""
    steps = plain_steps(setting.rollouts) if setting.schedule.by_prompt else None
    if steps is None:
        return None
    most_prompts = setting.framework.prompts_in_flight
    return prompt_queue(setting.rollouts, steps, setting.workload, most_prompts, busy_s)


def _with_calls(setting: RlSetting, seconds: float, steps: int) -> tuple[float, float]:
    """Seconds of some steps' rollouts with calls of environments, and of those in which their cores are busy.

    An answer waits for its calls, while the engine serves others; the last one of a step decides. The cores
    of all nodes serve one call after the other. Answers keep their KV meanwhile (their slots are not counted
    again).
    """
    if setting.environments is None:
        return seconds, 0.0
    answers = math.ceil(setting.workload.answers * setting.workload.sampled)
    served = setting.environments.busy_s(answers * steps, setting.nodes)
    outputs = setting.workload.output.draw(np.random.default_rng(0), DRAWS * answers)
    added = setting.environments.added_s(seconds, outputs.reshape(DRAWS, answers).astype(np.float64))
    return max(seconds + added, served), served


def _cores(setting: RlSetting, rollouts: float, served: float) -> float | None:
    """CPU cores of a node with which calls take as long as rollouts do while an answer waits for its own.

    Args:
        setting: the question.
        rollouts: seconds of the rollout engine alone.
        served: seconds in which the stated cores serve all calls.
    """
    calls = setting.environments
    return None if calls is None else calls.node_cores * served / (rollouts + calls.waits_s)


def _state(setting: RlSetting, memory: RlMemory) -> float:
    """Seconds in which a device's state leaves for rollouts and comes back."""
    if setting.schedule.split is not None or not setting.offload:
        return 0.0
    return memory.state / setting.framework.state_bytes_s


def _weights(setting: RlSetting) -> WeightMove:
    served = setting.rollouts.pools[0]
    pool = served.pool
    system, shared = setting.framework, setting.schedule.split is None
    engines = Receivers(
        devices=0 if shared else pool.replicas * pool.devices,
        weight_bytes=served.costs.weight_bytes * pool.devices / model_parameters(setting.model),
    )
    return weight_move(
        setting.cluster,
        setting.trainer,
        setting.plan,
        setting.transfer,
        engines,
        system.shared_tensor_s if shared else system.tensor_s,
    )


def _resume(setting: RlSetting, queue: PromptQueue | None) -> float:
    """Seconds in which the engine computes the KV of running answers again: of those in flight, by a queue.

    Raises:
        InputError: the schedule does so, and the engine's steps have no closed form.
    """
    if not setting.schedule.recomputes:
        return 0.0
    if queue is not None:
        return queue.resume_s * queue.running
    steps = plain_steps(setting.rollouts)
    if steps is None:
        raise InputError("KV is computed again only on one pool of plain steps without stages", "schedule")
    return resume_seconds(setting.rollouts, steps, setting.workload)
