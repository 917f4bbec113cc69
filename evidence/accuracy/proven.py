"""What a search recommends beside the best measured run of each family, and what it rests on.

    python -m benchmarks.proven [RUNS.csv ...] [--only PATTERN]

A family is model, GPU, GPUs, sequence and format; its question is ``plan`` with the batch of its best
measured row and the default headroom. Printed: whether the search keeps the published plan (a field that
its space lacks, or headroom, says why not), the predicted speed of the first choice over the best measured,
and what it lacks a measured run of; the same with ``--proven``. For families that stay above with
``--proven``: its choice, and the parts of the step that it saves over the published plan's own prediction,
as shares of the measured step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import meshwright as mw
from evidence.command import command
from meshwright.validation.ledger import PredictedCase, evaluate
from meshwright.validation.rows import PUBLISHED
from planner.training.lever_space import SEARCHED
from planner.training.measured_runs import PlanEvidence
from planner.training.space import Space
from simulator.frameworks import frameworks
from simulator.plan import Plan, Plans
from simulator.training import Step, predict
from simulator.uncertainty import default_headroom

FAR_ABOVE, ABOVE, NEAR = 1.25, 1.15, 0.15
PARTS = 5
"""Parts of the step that are printed."""
STRUCTURE = (
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "expert",
    "expert_tensor",
    "micro_batch",
    "schedule",
    "zero",
)
OF_QUESTION = {
    "trains_mtp": (True, False),
    "attention": ("flash-mx8", "unfused"),
    "narrow_output": (True,),
    "fused_latent_rope": (False,),
}
"""Levers of a row that are part of its question, and their values: whether a layer is trained, which products
run in 8 bits, and that a release has no fused attention or rotation for a model's heads, is no choice of
speed."""


def best_of_families(files: Sequence[Path]) -> dict[str, PredictedCase]:
    """The fastest measured row of each family, by tokens a second."""
    best: dict[str, PredictedCase] = {}
    for entry in evaluate(files).entries:
        case = entry.case
        if not case.measured_step_s:
            continue
        question = case.setting
        name = (
            f"{question.model.name}, {question.cluster.devices} {case.gpu}, {question.training.seq_len}, "
            f"{case.precision}"
        )
        if name not in best or _rate(entry) > _rate(best[name]):
            best[name] = entry
    return best


def _rate(entry: PredictedCase) -> float:
    return entry.case.setting.training.tokens / (entry.case.measured_step_s or 1.0)


def _stated(entry: PredictedCase) -> dict[str, object]:
    """Plan fields of a measured run, and of its release where the plan leaves them out."""
    return {**entry.case.setting.framework.defaults, **entry.case.plan.model_dump()}


def asked_levers(entry: PredictedCase) -> dict[str, object]:
    """The levers of a measured run that are part of its question."""
    stated = _stated(entry)
    return {name: stated[name] for name, values in OF_QUESTION.items() if stated.get(name) in values}


def _absent(space: Space, plan: Plan, fields: dict[str, object]) -> str:
    """The first field whose value the space lacks, and the value."""
    for name in STRUCTURE:
        if getattr(plan, name) not in space.values[name] and name != "recompute":
            return f"{name}={getattr(plan, name)}"
    levers, choices = space.levers, space.setting.choices
    if levers is None:
        return ""
    offered = space.setting.framework.offers
    for name in SEARCHED:
        value = fields.get(name)
        usual = getattr(choices, name, False)
        if value not in (None, usual, *offered.get(name, ()), *levers.values[name]):
            return f"{name}={value}"
    return ""


def answered(entry: PredictedCase, proven: bool) -> tuple[float, str, str]:
    """Predicted speed of the first choice over the measured best, what it lacks a run of, and its gain."""
    setting = entry.case.setting
    try:
        answer = mw.plan(
            model=setting.model,
            cluster=setting.cluster,
            gpus=setting.cluster.devices,
            seq_len=setting.training.seq_len,
            global_batch=setting.training.global_batch,
            precision=entry.case.precision,
            proven=proven,
            fix=asked_levers(entry),
        )
    except mw.MeshwrightError as error:
        return float("nan"), str(error)[:60], ""
    if not len(answer.result.plans):
        return float("nan"), "nothing fits", ""
    ratio = (entry.case.measured_step_s or 0.0) / float(answer.result.step.time[0])
    confidences = answer.found.confidence
    unproven = ", ".join(_lacking(confidences.evidence[0])) if confidences else ""
    return ratio, unproven, f"{answer.plans[0].plan.describe()}: {saved(entry, answer.result.step)}"


def _lacking(evidence: PlanEvidence) -> list[str]:
    """What a plan lacks a run of, how much longer runs near it took, and what it promises beyond them."""
    error, promise = evidence.near_error, evidence.promise
    far = [f"near runs took {error.error:.0%} longer"] if error and error.too_fast else []
    beyond = [f"{promise.gain:.0%} beyond the fastest near run"] if promise and promise.beyond else []
    return [*evidence.unproven, *far, *beyond]


def not_shown(entry: PredictedCase) -> str:
    """Why a search does not show the published plan: a field that its space lacks, or headroom."""
    setting = entry.case.setting
    headroom = default_headroom(setting)
    offered = replace(setting, framework=frameworks.get(setting.framework.name))
    space = Space.of(offered, setting.cluster.devices, headroom=headroom)
    room = setting.cluster.device.memory_bytes * (1 - headroom)
    fits = entry.predicted_peak_bytes <= room
    return _absent(space, entry.case.plan, _stated(entry)) or ("" if fits else "headroom")


def saved(entry: PredictedCase, step: Step) -> str:
    """The parts of the step that the first plan of a search saves over the published one."""
    published_s = predict(entry.case.setting, Plans.of(entry.case.plan)).seconds
    measured = entry.case.measured_step_s or 1.0
    gains = {
        part: (float(published_s[part][0]) if part in published_s else 0.0)
        - (float(step.seconds[part][0]) if part in step.seconds else 0.0)
        for part in {**published_s, **step.seconds}
    }
    largest = sorted(gains.items(), key=lambda gain: -abs(gain[1]))[:PARTS]
    return ", ".join(f"{part} {gain / measured:+.0%}" for part, gain in largest)


@command
def main(
    files: Sequence[Path] = (PUBLISHED / "megatron_bridge.csv",),
    *,
    only: Annotated[str, "families whose name matches this pattern"] = "",
) -> None:
    """Print every family and the counts."""
    best = best_of_families(files)
    listed = unmarked = high = judged = 0
    print(f"{'family':46s} {'kept':>12s} {'published':>10s} {'first':>6s} {'proven':>7s}  unproven")
    for name, entry in best.items():
        if not re.search(only, name):
            continue
        judged += 1
        problem = not_shown(entry)
        ratio = (entry.case.measured_step_s or 0.0) / entry.predicted_step_s
        (first, lacking, _), (sure, left, gain) = answered(entry, False), answered(entry, True)
        listed += not problem
        lacking += f"; with --proven: {left}" if left else ""
        unmarked += first > FAR_ABOVE and not lacking
        stays = sure > ABOVE and abs(ratio - 1) <= NEAR
        high += stays
        print(f"{name:46s} {problem or 'yes':>12s} {ratio:10.2f} {first:6.2f} {sure:7.2f}  {lacking}")
        if stays:
            print(f"    saves: {gain}")
    print(
        f"{judged} families: published plan kept in {listed}; first choice over {FAR_ABOVE - 1:.0%} above "
        f"the best measured and not marked {unmarked}; proven over {ABOVE - 1:.0%} above, published plan "
        f"within {NEAR:.0%}: {high}"
    )
