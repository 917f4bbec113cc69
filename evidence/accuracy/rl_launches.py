"""Published launches of post-training beside the first plan of `plan rl`: whether they fit, and the gap.

python -m benchmarks.rl_launches [--launches L01 L09]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from core.errors import MeshwrightError
from evidence.command import command
from planner.rl import search_rl
from simulator.lengths.lognormal import median_of_mean
from simulator.rl.scenario import make_rl
from simulator.rl.step import predict_rl

LIST = Path(__file__).with_suffix(".yaml")
PROMPT = 150
SIGMA = 0.5
ASKED = "prompts", "samples", "mini_batch"
NEAR = 0.05
"""Lead of the first plan within which a launch is near it."""


def scenario(launch: dict[str, Any]) -> dict[str, Any]:
    """A launch as a scenario."""
    response = launch["longest"] - PROMPT
    law = {
        "kind": "lognormal",
        "median": round(median_of_mean(response / 2, SIGMA, response)),
        "sigma": SIGMA,
    }
    split = launch.get("split")
    train = {"plan": launch["plan"], "scoring_micro_batch": launch.get("scoring")}
    train["offload"] = launch.get("offload")
    return {
        "title": launch["source"],
        **{key: launch[key] for key in ("model", "cluster", "gpus", "framework")},
        "workload": {
            "kind": "rl",
            **{key: launch[key] for key in (*ASKED, "algorithm") if key in launch},
            "input": PROMPT,
            "output": law | {"most": response},
            "seq_len": launch["longest"],
        },
        "roles": {"train": train, "generate": launch["generate"]},
        "schedule": {"kind": "one-step-off", "split": split} if split else {"kind": "synchronous"},
    }


@command
def main(*, launches: Sequence[str] = ()) -> None:
    file = launches
    in_space = close = count = 0
    for launch in yaml.safe_load(LIST.read_text(encoding="utf-8")):
        if file and launch["id"] not in file:
            continue
        count += 1
        data = scenario(launch)
        try:
            seconds = predict_rl(make_rl(data, launch["id"], Path())).timing.seconds
            first = search_rl(data, launch["id"], Path(), 1.0 if "split" in launch else 0.0, 1).plans[0]
        except MeshwrightError as error:
            print(f"{launch['id']}  refused: {error}", flush=True)
            continue
        lead = seconds / first.step.timing.seconds - 1
        in_space += 1
        close += lead <= NEAR
        plan = first.step.setting.plan.describe()
        print(
            f"{launch['id']}  {launch['model']}: {seconds:.1f} s, first {first.step.timing.seconds:.1f} s "
            f"({100 * lead:+.1f} %): {plan}",
            flush=True,
        )
    print(f"{count} launches: {in_space} predicted, {close} within {NEAR:.0%} of the first")
