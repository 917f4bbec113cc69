"""Saves as transfers on the event engine, beside the step's own traffic: the second way to time them.

The closed form gives a save a network of its own. Here its way from host memory to peers or storage is
a flow over the NICs of each node from the start of a step on; gradients, parameters and the save share them.
Both ways agree where a step sends nothing over the network.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.records import record
from hwmodels.topology import NETWORK
from simulator.checkpoints import Mechanism, Save, StepWindow
from simulator.checkpoints.rates import SaveRates
from simulator.checkpoints.state import SavedState
from simulator.checkpoints.synchronous import Synchronous
from simulator.engine.graph import Stream
from simulator.engine.timeline import Timeline
from simulator.plan import Plan
from simulator.setting import Setting
from simulator.training.step_graph import StepProgram, StreamWork, run
from simulator.training.step_graph.build import step_program
from simulator.training.step_graph.step import LinkDemand, Pass
from simulator.training.step_graph.streams import TO_HOST

SAVE = Stream("save", contends=False)
"""Writing a save: the NICs read host memory by themselves."""
ON_NETWORK = ("peers", "remote")


@record()
class EngineSave:
    """One plan's save beside its steps; seconds.

    Attributes:
        step_s: a step without a save.
        beside_s: a step while a save is copied and written.
        write_s: from the first to the last byte over the network, by place.
        extra_s: what the steps beside one save take longer, in all.
    """

    step_s: float
    beside_s: float
    write_s: dict[str, float]
    extra_s: float


def engine_save(
    setting: Setting,
    plan: Plan,
    mechanism: Mechanism,
    state: SavedState,
    rates: SaveRates,
    window: StepWindow,
) -> EngineSave:
    """Time a save of one plan on the engine; arrays hold that plan.

    Raises:
        InputError: the engine cannot run the plan's step.
    """
    program = step_program(setting, plan)
    bare = run(program).period
    closed = mechanism.save(state, rates, window)
    copied = float(mechanism.copy_s(state, rates)[0])
    # A copy that training waits for is no part of the steps beside it.
    hidden = copied > 0 and float(closed.stall_s[0]) < copied
    writes = {place: float(mechanism.write_s(place, state, rates)[0]) for place in closed.safe_s}
    writes = {place: seconds for place, seconds in writes.items() if place in ON_NETWORK and seconds > 0}
    if isinstance(mechanism, Synchronous) or not writes:
        return EngineSave(bare, bare, {}, 0.0)
    size = float(mechanism.node_bytes(state)[0])
    write_s: dict[str, float] = {}
    slowest, extra = bare, 0.0
    for place, alone in writes.items():
        share = min(size / alone / rates.nic, 1.0)
        load = LinkDemand(NETWORK, share, ((NETWORK, size),))
        work: list[StreamWork] = [StreamWork("save copy", copied, TO_HOST, after=())] if hidden else []
        work.append(StreamWork("save write", alone, SAVE, "save", after=(), load=load))
        beside, write = _beside(program, tuple(work))
        write_s[place] = write
        slowest = max(slowest, beside)
        extra += max(beside - bare, 0.0) * write / beside
    return EngineSave(bare, slowest, write_s, extra)


def _beside(program: StepProgram, work: Pass) -> tuple[float, float]:
    """Seconds of a step beside a save, and those that the save takes over as many such steps as it needs."""
    beside = replace(program, host_updates=(work,) * program.stages, updates_from="step")
    if program.host_updates and program.updates_from == "step":
        both = tuple((*update, *_shifted(work, len(update))) for update in program.host_updates)
        beside = replace(program, host_updates=both)
    timeline = run(beside)
    names, ends = np.array(timeline.graph.name), timeline.ends
    saved = np.char.startswith(names.astype(str), "save ")
    writes = names == "save write"
    steps = Timeline(timeline.graph, timeline.starts, np.where(saved, timeline.starts, ends), timeline.static)
    step, last = steps.period, float(steps.ends.max())
    took = 0.0
    alone = next(each.seconds for each in work if each.name == "save write")
    for end in ends[writes]:
        # What is left when the step has ended runs at the full rate here; further steps are like this one.
        left = max(float(end) - last, 0.0) / alone
        took = max(took, float(end) if left == 0 else step / max(1 - left, 1e-9))
    return step, took


def _shifted(work: Pass, by: int) -> Pass:
    return tuple(replace(each, after=tuple(place + by for place in each.after or ())) for each in work)


def timed(save: Save, closed: dict[str, float], engine: EngineSave) -> Save:
    """A save of the closed form with the engine's times: steps beside it count as time that training waits.

    Args:
        save: of the closed form.
        closed: seconds of its writes over the network, by place.
        found: the engine's.
    """
    later = {place: seconds - closed[place] for place, seconds in engine.write_s.items()}
    safe, behind = {}, 0.0
    for place, at in save.safe_s.items():
        behind += later.get(place, 0.0)
        safe[place] = at + behind
    longest = max(engine.write_s.values(), default=0.0)
    return replace(
        save,
        stall_s=save.stall_s + engine.extra_s,
        safe_s=safe,
        least_period_s=np.maximum(save.least_period_s, longest),
    )
