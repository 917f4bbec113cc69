"""Steps of verl and AReaL, and moves of weights, beside their published times.

    python -m benchmarks.rl_systems FOLDER [--tables phases ratios interruption weights] [--sigma 1.0]

FOLDER holds steps.csv and weight_sync.csv. Lengths of answers are printed by no source: `rl_systems.yaml`
says which are solved from a phase (which then is no prediction) and which are assumed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from core.errors import MeshwrightError
from evidence.accuracy.errors import Errors
from evidence.command import command
from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.lengths.lognormal import median_of_mean
from simulator.models import models
from simulator.ops.counts import model_parameters
from simulator.plan import Plan, Plans
from simulator.rl.frameworks import rl_frameworks
from simulator.rl.scenario import make_rl
from simulator.rl.step import RlStep, predict_rl
from simulator.rl.transfers import transfers
from simulator.rl.weights import WEIGHT_BYTES, Receivers, weight_move
from simulator.setting import Setting
from simulator.training import predict
from simulator.workload import Training

FACTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OWN = ("base", "most", "sigma", "mean", "means", "generating", "over", "gain")
NEAR = 0.15
"""Share by which a ratio may differ from the published one."""
POINTS = 0.05
"""Gain of interruption by which a prediction may differ from a published one."""
ROUNDS = 5
"""Secant steps that solve a mean answer."""


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings merged key by key; a schedule of another kind replaces the one below."""
    if "kind" in above and above["kind"] != below.get("kind", above["kind"]):
        return dict(above)
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def settings_of(facts: dict[str, Any]) -> dict[str, Any]:
    """A row's settings with those of its bases."""
    if "base" not in facts:
        return facts
    return merged(settings_of(FACTS["bases"][facts["base"]]), {k: v for k, v in facts.items() if k != "base"})


def scenario(facts: dict[str, Any], mean: float, sigma: float) -> dict[str, Any]:
    """A row as a scenario, with answers of some mean, and the row's own spread where it states one."""
    stated = settings_of(facts)
    longest, sigma = stated["most"], stated.get("sigma", sigma)
    law = {
        "kind": "lognormal",
        "median": median_of_mean(mean, sigma, longest),
        "sigma": sigma,
        "most": longest,
    }
    keys = {key: value for key, value in stated.items() if key not in OWN}
    return keys | {"workload": {**keys["workload"], "output": law}}


def solved_mean(facts: dict[str, Any], seconds: float, sigma: float) -> float:
    """Mean answer with which the updates of a step, and their pass of the host, take some seconds."""

    def update(mean: float) -> float:
        setting = make_rl(scenario(facts, mean, sigma), "row", Path())
        time = float(predict(setting.trainer, Plans.of(setting.plan)).time[0])
        return setting.workload.updates * time + setting.host_pass_s

    return secant(update, seconds, 1500.0)


def secant(time: Callable[[float], float], seconds: float, mean: float) -> float:
    """Mean answer with which a time in proportion to it, about, takes some seconds."""
    for _ in range(ROUNDS):
        mean *= seconds / time(mean)
    return mean


def run(facts: dict[str, Any], mean: float, sigma: float) -> RlStep:
    """The predicted step of a row."""
    return predict_rl(make_rl(scenario(facts, mean, sigma), "row", Path()))


def phases_table(rows, step_of, mean_of) -> None:
    """Seconds of generation, log-probabilities and steps; the update solves the mean answer.

    verl's timers lie around calls of its controller: each holds its pass of the host. Updates and passes
    over the same answers say how long a pass took: beyond it, they differ as their kernels do. Of rollouts
    beside updates the engine's own time is printed.
    """
    errors = Errors()
    for name in FACTS["phases"]:
        row, phases = rows[name], step_of(name).phases
        setting, longer = step_of(name).setting, phases.update / phases.scoring
        passes = 0 if setting.schedule.beside else setting.rollout_passes
        generation = phases.generation + passes * setting.host_pass_s
        figures = {"generation": (generation, row["generation_s"])}
        figures["log-probabilities"] = phases.scoring + setting.host_pass_s, row["log_prob_s"]
        figures["step"] = step_of(name).timing.seconds, row["step_s"]
        passed = (longer * float(row["log_prob_s"]) - float(row["update_s"])) / (longer - 1)
        words = (
            f"{name}  mean answer {mean_of(name):,.0f} (solved)  update {phases.update:.0f}  host pass "
            f"{setting.host_pass_s:.0f} ({passed:.0f} by both timers)"
        )
        for phase, (seconds, measured) in figures.items():
            error = errors.add(seconds, float(measured), phase)
            words += f"  {phase} {seconds:.1f} / {measured} ({100 * error:+.0f} %)"
        print(words, flush=True)
    print("\n".join(errors.lines("phases, %")))


def ratios_table(rows, step_of, mean_of, sigma) -> None:
    """Hours of a slower row over those of a faster one, with answers of the slower row and of its own.

    Hours are those of 400 steps where they are printed: the steps whose update solves the mean answer.
    """
    errors = Errors()
    for name, facts in FACTS["ratios"].items():
        over = facts["over"]
        means = {"answers of the slower row": facts.get("mean") or mean_of(over)}
        if rows[name]["update_s"]:
            means["answers of its own"] = mean_of(name)
        hours = hours_of(rows[over], rows[name])
        published, steps = hours[0] / hours[1], [3600 * each for each in hours]
        ratios = []
        for words, mean in means.items():
            try:
                fast = run(facts, mean, sigma)
            except MeshwrightError as error:
                print(f"{name}: skipped, {error}")
                continue
            of_slow = run(FACTS["slower"][over], mean, sigma) if "mean" in facts else step_of(over)
            slow, seconds = of_slow.timing.seconds, fast.timing.seconds
            ratio = slow / seconds
            ratios.append(ratio)
            error = errors.add(ratio, published, words)
            print(
                f"{name} over {over}, {words} ({mean:,.0f}): {ratio:.2f}, published {published:.2f} "
                f"({100 * error:+.0f} %); steps {slow:.0f} and {seconds:.0f} s (published {steps[0]:.0f} and "
                f"{steps[1]:.0f}), {fast.timing.binding} decide",
                flush=True,
            )
        if ratios and abs(ratios[-1] / published - 1) > NEAR and min(ratios) <= published <= max(ratios):
            print(
                f"{name}: not decidable, both lengths are inferred and the published ratio is between theirs"
            )
    print("\n".join(errors.lines("ratios, %")))


def hours_of(*rows: dict[str, Any]) -> list[float]:
    """Hours of a step of each row: the mean over 400 steps where all rows have it, else over 100."""
    steps = 400 if all("hours_per_400_steps" in row for row in rows) else 100
    return [float(row[f"hours_per_{steps}_steps"]) / steps for row in rows]


def interruption_table(sigma) -> None:
    """Tokens a second of rollouts that new weights interrupt, over those that finish first.

    Lengths and devices of the rollouts are not printed: a published gain that some of them give, but not the
    first ones, is not decided.
    """
    for size, facts in FACTS["interruption"].items():
        gains = []
        for mean, generating in product(facts["means"], facts["generating"]):
            split = {"train": facts["gpus"] - generating, "generate": generating}
            schedule = {"kind": "asynchronous", "staleness": 8, "running": "recompute", "split": split}
            phases = run(merged(facts, {"schedule": schedule}), mean, sigma).phases
            gains.append(phases.generation / (phases.busy_generation + phases.resume) - 1)
        first, least, largest, published = gains[0], min(gains), max(gains), facts["gain"]
        open_or_not = "not decidable" if least <= published <= largest else "missed"
        verdict = "reached" if abs(first - published) <= POINTS else open_or_not
        print(
            f"interruption, {size}: {100 * first:+.0f} % with answers of {facts['means'][0]:,} on "
            f"{facts['generating'][0]} GPUs, {100 * least:+.0f} to {100 * largest:+.0f} % with means of "
            f"{facts['means']} on {facts['generating']}; published {100 * published:+.0f} %: {verdict}",
            flush=True,
        )


def weights_table(folder: Path) -> None:
    """Seconds of moves of weights; figures below one broadcast of all bytes have no place in the order."""
    predicted, published = [], []
    with (folder / "weight_sync.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            facts = FACTS["weights"][row["model"]]
            system, model = rl_frameworks.get(facts["framework"]), models.get(facts["model"])
            training, engines = int(row["training_gpus"]), int(row["generation_gpus"])
            cluster = clusters.get("hgx-h20")
            rows = Training.model_validate({"seq_len": 4096, "global_batch": training})
            trainer = Setting(model, cluster.resized(training), rows, frameworks.get(system.train))
            plan = Plan.model_validate({**facts["plan"], "data": training})
            move = weight_move(
                cluster.resized(training + engines),
                trainer,
                plan,
                transfers.get(row["method"]),
                Receivers(engines, 2.0),
                system.tensor_s,
            )
            seconds = float(row["seconds"])
            model_bytes = WEIGHT_BYTES * model_parameters(model)
            least = float(
                cluster.resized(training + engines).collective("broadcast", model_bytes, engines + 1)
            )
            if seconds < least:
                print(
                    f"{row['id']}  {row['model']} {row['method']}: published {seconds:g} s is below one "
                    f"broadcast of {model_bytes / 1e9:.1f} GB over the links, {least:.3f} s: it times a "
                    f"part; predicted {move.seconds:.2f} s"
                )
                continue
            predicted.append(move.seconds)
            published.append(seconds)
            print(
                f"{row['id']}  {row['model']} {row['method']}: {move.seconds:.2f} s, published {seconds:g} "
                f"(factor {max(move.seconds / seconds, seconds / move.seconds):.2f}); {move}"
            )
    same = list(np.argsort(predicted)) == list(np.argsort(published))
    print(f"order: {'the same' if same else 'differs'}")


@command
def main(
    folder: Path,
    *,
    tables: Sequence[str] = ("phases", "ratios", "interruption", "weights"),
    sigma: float = FACTS["sigma"],
) -> None:
    with (folder / "steps.csv").open(encoding="utf-8") as lines:
        rows = {row["id"]: row for row in csv.DictReader(lines)}
    for name, printed in FACTS["later"]["rows"].items():
        rows[name] = rows[name] | printed

    @cache
    def mean_of(name: str) -> float:
        facts = FACTS["phases"].get(name) or FACTS["ratios"][name]
        return solved_mean(facts, float(rows[name]["update_s"]), sigma)

    @cache
    def step_of(name: str) -> RlStep:
        if name in FACTS["phases"]:
            return run(FACTS["phases"][name], mean_of(name), sigma)
        facts = FACTS["slower"][name]
        return run(facts, facts["mean"], sigma)

    if "phases" in tables:
        phases_table(rows, step_of, mean_of)
    if "ratios" in tables:
        ratios_table(rows, step_of, mean_of, sigma)
    if "interruption" in tables:
        interruption_table(sigma)
    if "weights" in tables:
        weights_table(folder)
