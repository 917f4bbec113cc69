"""Steps of post-training beside NeMo RL's published ones, with host times fitted on other models.

    python -m benchmarks.rl_rows NEMO_RL.csv [--sigma 0.5] [--rows R001 R007]

The row's mean answer is the mean of a lognormal law whose spread (``--sigma``) no page states. Host times of
a token, of a weight tensor and of a byte of state are fitted on the synchronous rows of all other models, and
the row is predicted with them.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from scipy.optimize import nnls

from core.errors import MeshwrightError
from evidence.accuracy.errors import Errors
from evidence.command import command
from simulator.lengths.lognormal import median_of_mean
from simulator.rl.scenario import make_rl
from simulator.rl.schedules import Phases
from simulator.rl.step import RlStep, predict_rl
from simulator.rl.weights import tensors

FACTS = Path(__file__).with_name("rl_rows.yaml")


def scenario(row, facts, sigma):
    """A row as a scenario; None where the row or its recipe leaves too much open."""
    recipe = facts["models"].get(row["model"])
    if recipe is None or row["id"] in facts["left_out"]:
        return None
    degrees = [
        int(part) if part.strip().isdigit() else 1
        for part in row["training_tp_cp_ep_pp_vpp"][1:-1].split(",")
    ]
    tensor, context, expert, pipeline = degrees[0], degrees[1], degrees[2], degrees[-2]
    plan = {
        "tensor": tensor,
        "context": context,
        "expert": expert,
        "pipeline": pipeline,
        "zero": 1,
        **recipe["plan"],
    }
    plan["sequence_parallel"] = tensor > 1
    if pipeline in recipe.get("ends", {}):
        plan["first_stage_layers"], plan["last_stage_layers"] = recipe["ends"][pipeline]
    mean, prompt = float(row["mean_sequence_tokens"]), recipe["input"]
    longest = int(row["max_sequence_tokens"]) - prompt
    gpus = int(row["gpus"])
    schedule = {"kind": "synchronous"}
    if row["mode"] == "async":
        generating = facts["generating"].get(row["id"], gpus // 2)
        split = {"train": gpus - generating, "generate": generating}
        schedule = {"kind": "asynchronous", "staleness": float(row["staleness_steps"]), "split": split}
    samples = recipe["samples"]
    return {
        "title": row["id"],
        "model": recipe["model"],
        "cluster": facts["clusters"][row["gpu"]],
        "gpus": gpus,
        "workload": {
            "kind": "rl",
            "algorithm": row["algorithm"].lower(),
            "prompts": int(row["rollout_samples"]) // samples,
            "samples": samples,
            "input": prompt,
            "output": {
                "kind": "lognormal",
                "median": median_of_mean(mean, sigma, longest),
                "sigma": sigma,
                "most": longest,
            },
            "mini_batch": int(row["train_batch_samples"]),
            "precision": row["precision"],
        },
        "roles": {
            "train": {"plan": plan, "scoring_micro_batch": recipe["scoring"]},
            "generate": {"tensor": int(row["generation_tp"]), **recipe.get("generate", {})},
        },
        "schedule": schedule,
    }


def drivers(step):
    """What host times multiply: tokens of a node, weight tensors, bytes of state, tensors sent elsewhere."""
    setting, handed = step.setting, tensors(step.setting.model)
    return np.array([step.tokens / setting.nodes, handed, step.memory.state, handed])


def in_turn(step):
    """Whether roles share devices: then state moves, and weights are handed over there."""
    return step.setting.schedule.split is None


def host_seconds(step):
    """Seconds of the parts of a step that the system's constants give."""
    system = step.setting.framework
    return drivers(step) * [system.token_s, system.shared_tensor_s, 1 / system.state_bytes_s, system.tensor_s]


def fitted(rows):
    """Seconds a token, a tensor and a byte that fit synchronous rows, relative errors squared.

    The seconds of a tensor that goes to devices of an engine's own fit the other rows, with these.
    """
    steps, measured = zip(*[row for row in rows if in_turn(row[0])], strict=True)
    measured = np.array(measured)
    missing = [
        seconds - step.timing.seconds + host_seconds(step)[:3].sum()
        for step, seconds in zip(steps, measured, strict=True)
    ]
    design = np.stack([drivers(step)[:3] for step in steps])
    shared = nnls(design / measured[:, np.newaxis], missing / measured)[0]
    apart = [(step, seconds) for step, seconds in rows if not in_turn(step)]
    handed = np.array([drivers(step)[3] / seconds for step, seconds in apart])
    rest = np.array([1 - seconds_with(step, [*shared, 0.0]) / seconds for step, seconds in apart])
    return [*shared, max(float(handed @ rest / (handed @ handed)), 0.0)]


def seconds_with(step, constants):
    """Seconds of a step with such constants."""
    host, shared, state, apart = drivers(step) * constants
    phases, (_, shared_before, _, apart_before) = step.phases, host_seconds(step)
    handed = shared - shared_before if in_turn(step) else apart - apart_before
    changed = Phases(
        *(phases.generation, phases.busy_generation, phases.scoring, phases.update),
        weights=phases.weights + handed,
        state=state if in_turn(step) else 0.0,
        host=host,
    )
    return step.setting.schedule.timing(changed).seconds


@command
def main(file: Path, *, sigma: float = 0.5, rows: Sequence[str] = ()) -> None:
    facts = yaml.safe_load(FACTS.read_text(encoding="utf-8"))
    steps: dict[str, tuple[RlStep, float, str]] = {}
    with file.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if rows and row["id"] not in rows:
                continue
            data = scenario(row, facts, sigma)
            if data is None:
                print(
                    f"{row['id']}  {row['model']}: skipped, {facts['left_out'].get(row['id'], 'no recipe')}"
                )
                continue
            try:
                step = predict_rl(make_rl(data, row["id"], Path()))
            except MeshwrightError as error:
                print(f"{row['id']}  {row['model']}: skipped, {error}")
                continue
            steps[row["id"]] = step, float(row["step_s"]), row["model"]
            names = ("generation", "busy_generation", "scoring", "update", "weights", "state", "host")
            parts = "  ".join(f"{name} {getattr(step.phases, name):.1f}" for name in names)
            asked_for = f"{row['id']}  {row['model']:<12} {row['gpu']:<9} {row['mode']:<6}"
            fits = "" if step.memory.fits else ", does not fit"
            figures = f"step {step.timing.seconds:.1f}  measured {row['step_s']}{fits}"
            print(f"{asked_for} {parts}  {figures}", flush=True)
    errors, inside = Errors(), 0
    for name, (step, measured, model) in steps.items():
        constants = fitted([(other, seconds) for other, seconds, of in steps.values() if of != model])
        mode = "sync" if in_turn(step) else "async"
        groups = f"{mode}, model left out", "all, model left out"
        left_out = seconds_with(step, constants)
        error = 100 * errors.add(left_out, measured, *groups)
        inside += abs(measured / left_out - 1) <= step.half_width
        shipped = 100 * errors.add(step.timing.seconds, measured, "all, shipped constants")
        print(f"{name}  {model}: model left out {error:+.1f} %  (shipped {shipped:+.1f} %)")
    print("\n".join(errors.lines("step, %")))
    print(f"in the 90 % band, model left out: {inside} of {len(steps)}")
    token_s, shared_s, byte_s, tensor_s = fitted([(step, seconds) for step, seconds, _ in steps.values()])
    print(
        f"fitted on all: token_s {token_s:.2e}, shared_tensor_s {shared_s:.2e}, tensor_s {tensor_s:.2e}, "
        f"state_bytes_s {1 / byte_s:.2e}"
    )
