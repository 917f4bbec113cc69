"""Published totals of DeepSpeed-Chat, OpenRLHF and LlamaRL beside predicted ones.

    python -m benchmarks.rl_totals FOLDER [--tables hours totals steps]

FOLDER holds deepspeed_chat.csv and openrlhf.csv. Settings, and what of them is assumed, are in
`rl_totals.yaml`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from evidence.accuracy.errors import Errors
from simulator.lengths.lognormal import median_of_mean
from simulator.plan import Plans
from simulator.rl.frameworks import rl_frameworks
from simulator.rl.scenario import make_rl
from simulator.rl.setting import RlSetting
from simulator.rl.step import predict_rl
from simulator.training import predict
from simulator.training.memory import memory

FACTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
OFFLOAD = {"place": "zero-offload"}
"""Where the trainer's state does not fit: the optimizer on the host."""


def setting_of(data: dict[str, Any]) -> RlSetting:
    """A row's mapping as a setting."""
    return make_rl(data, "row", Path())


def seconds(data: dict[str, Any]) -> float:
    """Predicted seconds of a step."""
    return predict_rl(setting_of(data)).timing.seconds


def fits(setting: RlSetting) -> bool:
    """Whether the trainer's step fits its devices."""
    plans = Plans.of(setting.plan)
    step = predict(setting.trainer, plans)
    usage = memory(setting.trainer, plans, step.stages, step.parameters)
    return float(np.max(usage.peak)) <= setting.cluster.device.memory_bytes


def largest(make: Callable[[int, dict[str, Any]], dict[str, Any]], most: int) -> tuple[int, dict[str, Any]]:
    """Answers a device in a batch, and the mapping, of the largest batch whose training fits.

    Args:
        make: the mapping of answers a device and further keys of the plan.
        most: answers a device, a power of two.
    """
    for placed in ({}, OFFLOAD):
        each = most
        while each:
            data = make(each, placed)
            if fits(setting_of(data)):
                return each, data
            each //= 2
    return 1, make(1, OFFLOAD)


def chat(base: dict[str, Any], lengths: dict[str, Any], roles: dict[str, Any], tensor: int):
    """Maker of DeepSpeed-Chat's mappings: a batch is generated, scored and trained on at once."""

    def make(each: int, placed: dict[str, Any]) -> dict[str, Any]:
        answers = each * base["gpus"]
        plan = {"zero": 3, "recompute": "full", "micro_batch": each, **placed}
        generate = {"tensor": tensor, "options": {"max_sequences": each * tensor}}
        return {
            **base,
            "framework": "deepspeed-chat",
            "workload": {"kind": "rl", "algorithm": "ppo", "prompts": answers, **lengths},
            "roles": {"train": {"plan": plan}, "generate": generate, **roles},
        }

    return make


def hours_table(folder: Path) -> None:
    """Hours of DeepSpeed-Chat's third step."""
    facts, errors = FACTS["deepspeed_chat"], Errors()
    for row in rows_of(folder / "deepspeed_chat.csv"):
        model, gpus = row["model"].lower(), int(row["gpus"])
        base = {"model": model, "cluster": facts["clusters"][row["gpu"]], "gpus": gpus}
        lengths = {"input": facts["input"], "output": facts["output"]}
        small = {"reward": facts["small"], "critic": facts["small"]}
        make = chat(base, lengths, small, facts["tensor"][model])
        each, data = largest(make, facts["batch"] // gpus)
        hours = facts["samples"] / (each * gpus) * seconds(data) / 3600
        error = errors.add(hours, float(row["hours"]), "hours")
        print(
            f"{row['id']}  {row['model']} on {gpus} {row['gpu']}, batches of {each * gpus}: {hours:.1f} h, "
            f"published {row['hours']} ({100 * error:+.0f} %)",
            flush=True,
        )
    print("\n".join(errors.lines()))


def totals_table(folder: Path) -> None:
    """Seconds of 1,024 prompts under DeepSpeed-Chat and OpenRLHF."""
    facts = FACTS["openrlhf"]
    most, sigma = facts["longest"], facts["sigma"]
    law = {"kind": "lognormal", "median": round(median_of_mean(most / 2, sigma, most)), "sigma": sigma}
    for row in rows_of(folder / "openrlhf.csv"):
        named, gpus = facts["models"][row["model"]], int(row["gpus"])
        base = {"model": named["model"], "cluster": facts["cluster"], "gpus": gpus}
        make = chat(base, {"input": most // 2, "output": most}, {}, named["tensor"])
        each, data = largest(make, most // gpus)
        theirs = most / (each * gpus) * seconds(data)
        work = {"kind": "rl", "algorithm": "ppo", "prompts": most, "mini_batch": 128, "input": most // 2}
        ours = seconds(
            {
                **base,
                "framework": "openrlhf",
                "workload": work | {"output": law | {"most": most}},
                "roles": {
                    "train": {"plan": {"zero": 3, "recompute": "full"}},
                    "generate": {"engine": "vllm-0.4", "tensor": named["tensor"]},
                },
                "schedule": {"kind": "synchronous", "split": {"train": gpus * 3 // 4, "generate": gpus // 4}},
            }
        )
        print(
            f"{row['id']}  {row['model']}: DeepSpeed-Chat {theirs:.0f} s ({row['deepspeed_chat_s']}), "
            f"OpenRLHF {ours:.0f} s ({row['openrlhf_s']}), ratio {theirs / ours:.2f}, "
            f"published {row['ratio']}",
            flush=True,
        )


def steps_table() -> None:
    """Seconds of a step of LlamaRL and of its synchronous baseline."""
    facts, ratios = FACTS["llamarl"], []
    free = {"value": 0.0, "kind": "read", "source": facts["host"]}
    system = {**rl_frameworks.definition("nemo-rl"), "name": "llamarl", "title": "LlamaRL"}
    system |= {"train": {"value": "torch-fsdp-eager", "kind": "read", "source": facts["source"]}}
    algorithm = {"name": "aipo", "title": "AIPO", "source": facts["source"], "old_log_probs": True}
    law = {"kind": "lognormal", "sigma": facts["sigma"], "most": facts["longest"]}
    law["median"] = round(median_of_mean(facts["mean"], facts["sigma"], facts["longest"]))
    work = {"kind": "rl", "algorithm": algorithm, "input": facts["input"], "output": law}
    work |= {key: facts[key] for key in ("prompts", "samples")}
    for name, row in facts["rows"].items():
        base = {"model": row["model"], "cluster": "dgx-h100", "gpus": row["gpus"], "workload": work}
        base |= {"framework": system | {"token_s": free, "tensor_s": free}}
        half = row["gpus"] // 2
        apart = {"kind": "asynchronous", "staleness": 2, "split": {"train": half, "generate": half}}
        times = []
        for roles, schedule in ((row["shared"], {"kind": "synchronous"}), (row["apart"], apart)):
            train = {"plan": {"recompute": "full", **roles["train"]}}
            stated = {"roles": {"train": train, "generate": roles["generate"]}, "schedule": schedule}
            times.append(seconds(base | stated))
        ratios.append(times[0] / times[1])
        low, high = row["reach"]
        print(
            f"LlamaRL {name}: baseline {times[0]:.1f} s ({row['baseline_s']}), LlamaRL {times[1]:.1f} s "
            f"({row['llamarl_s']}), ratio {ratios[-1]:.2f} (published "
            f"{row['baseline_s'] / row['llamarl_s']:.2f}, reach {low} to {high})",
            flush=True,
        )
    print(f"monotone: {'yes' if ratios == sorted(ratios) else 'no'}")


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="*", default=["hours", "totals", "steps"])
    arguments = parser.parse_args()
    if "hours" in arguments.tables:
        hours_table(arguments.folder)
    if "totals" in arguments.tables:
        totals_table(arguments.folder)
    if "steps" in arguments.tables:
        steps_table()


if __name__ == "__main__":
    main()
