"""Published totals of DeepSpeed-Chat and OpenRLHF beside predicted ones.

    python -m benchmarks.rl_totals FOLDER [--tables hours totals]

FOLDER holds deepspeed_chat.csv and openrlhf.csv. Settings, and what of them is assumed, are in
`rl_totals.yaml`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from evidence.accuracy.errors import Errors
from evidence.command import command
from simulator.rl.scenario import make_rl
from simulator.rl.setting import RlSetting
from simulator.rl.step import predict_rl

FACTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
STREAMED = {"host": 1.0, "prefetch": 0}
OFFLOAD = {
    "place": {"parameters": STREAMED, "gradients": STREAMED, "optimizer": {"host": 1.0, "unit": "sub-group"}},
    "update": {"on": "host"},
}
"""--offload of DeepSpeed-Chat moves parameters and the optimizer (utils/ds_utils.py)."""
ADAM = {
    "place": {"gradients": {"host": 1.0}, "optimizer": {"host": 1.0, "unit": "sub-group"}},
    "update": {"on": "host"},
}
"""--adam_offload of OpenRLHF; gradients lie where the optimizer does (DeepSpeed, runtime/zero/stage3.py)."""


def setting_of(data: dict[str, Any]) -> RlSetting:
    """A row's mapping as a setting."""
    return make_rl(data, "row", Path())


def seconds(data: dict[str, Any]) -> float:
    """Predicted seconds of a step."""
    return predict_rl(setting_of(data)).timing.seconds


def largest(
    make: Callable[[int, dict[str, Any]], dict[str, Any]], most_answers: int, *ways: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Answers a device in a batch, and the mapping, of the largest batch that fits.

    Args:
        make: the mapping of answers a device and further keys of the plan.
        most_answers: answers a device, a power of two.
        ways: further keys of the plan, in the order in which they are tried.
    """
    for placed in ways:
        each = most_answers
        while each:
            data = make(each, placed)
            if predict_rl(setting_of(data), engine=False).memory.fits:
                return each, data
            each //= 2
    return 1, make(1, ways[-1])


def chat(
    base: dict[str, Any], step: dict[str, Any], roles: dict[str, Any], tensor: int, **stated: str
) -> Callable[[int, dict[str, Any]], dict[str, Any]]:
    """Maker of DeepSpeed-Chat's mappings of some answers a device in a batch.

    Without ``prompts`` in the step, a batch is generated, scored and trained on at once.
    """

    def make(each: int, placed: dict[str, Any]) -> dict[str, Any]:
        plan = {"zero": 3, "recompute": "full", "micro_batch": each, **stated, **placed}
        generate = {"tensor": tensor, "options": {"max_sequences": each * tensor}}
        return {
            **base,
            "framework": "deepspeed-chat",
            "workload": {"kind": "rl", "algorithm": "ppo", "prompts": each * base["gpus"], **step},
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
        make = chat(base, lengths, small, facts["tensor"][model], attention=facts["attention"])
        each, data = largest(make, facts["batch"] // gpus, {}, OFFLOAD)
        data["roles"]["generate"]["engine"] = facts["engine"]
        hours = facts["samples"] / (each * gpus) * seconds(data) / 3600
        error = errors.add(hours, float(row["hours"]), "hours")
        print(
            f"{row['id']}  {row['model']} on {gpus} {row['gpu']}, batches of {each * gpus}: {hours:.1f} h, "
            f"published {row['hours']} ({100 * error:+.0f} %)",
            flush=True,
        )
    print("\n".join(errors.lines()))


def compared(row: dict[str, Any], system: str) -> dict[str, Any]:
    """A mapping of 1,024 prompts under one of the systems that OpenRLHF compares."""
    facts = FACTS["openrlhf"]
    step = {key: facts[key] for key in ("prompts", "mini_batch", "input", "output")}
    base = {"model": row["model"], "cluster": facts["cluster"]}
    if system == "deepspeed-chat":
        step |= {"mini_batch": facts["accumulated"] * row["batch"] * row["gpus"]}
        data = chat(base | {"gpus": row["gpus"]}, step, {}, 1)(row["batch"], OFFLOAD)
        if "memory_share" in row:
            data["roles"]["generate"]["options"]["memory_share"] = row["memory_share"]
        return data | ({"weights": row["weights"]} if "weights" in row else {})
    # Actor and critic train at once on half of these devices each: as long as both in turn on all.
    split = {"train": row["gpus"] // 2, "generate": row["gpus"] // 4}
    plan = {"zero": 3, "recompute": "full", "micro_batch": row["batch"], **ADAM}
    return {
        **base,
        "gpus": sum(split.values()),
        "framework": "openrlhf",
        "workload": {"kind": "rl", "algorithm": "ppo", **step},
        "roles": {
            "train": {"plan": plan, "packing": "none", "scoring_micro_batch": row["scoring"]},
            "generate": {
                "engine": facts["engine"],
                "tensor": row["tensor"],
                # Each actor rank sends the prompts of one forward pass and waits for all answers.
                "options": {"max_sequences": row["scoring"] * row["tensor"]},
            },
        },
        "schedule": {"kind": "synchronous", "split": split},
    }


def totals_table(folder: Path) -> None:
    """Seconds of 1,024 prompts under DeepSpeed-Chat and OpenRLHF."""
    facts = FACTS["openrlhf"]
    for row in rows_of(folder / "openrlhf.csv"):
        named = facts["models"][row["model"]]
        gpus = {"gpus": int(row["gpus"])}
        chat_row = named["deepspeed-chat"] | gpus
        phases = predict_rl(setting_of(compared(chat_row, "deepspeed-chat"))).phases
        ours = seconds(compared(named["openrlhf"] | gpus, "openrlhf"))
        print(
            f"{row['id']}  {row['model']}: DeepSpeed-Chat {phases.total:.0f} s ({row['deepspeed_chat_s']}), "
            f"OpenRLHF {ours:.0f} s ({row['openrlhf_s']}), ratio {phases.total / ours:.2f}, "
            f"published {row['ratio']}",
            flush=True,
        )
        other = "in-place" if chat_row.get("weights") == "unpinned" else "unpinned"
        total = seconds(compared(chat_row | {"weights": other}, "deepspeed-chat"))
        print(f"  with weights {other}: {total:.0f} s, ratio {total / ours:.2f}")
    errors = Errors()
    for row in facts["phases"]:
        phases = predict_rl(setting_of(compared(row, row["system"]))).phases
        figures = {"training": phases.update, "generation": phases.total - phases.update}
        words = f"{row['system']}, {row['model']} on {row['gpus']}:"
        for phase, time in figures.items():
            error = errors.add(time, row[f"{phase}_s"], f"{row['system']} {phase}", f"all {phase}")
            words += f"  {phase} {time:.0f} s ({row[f'{phase}_s']:.0f}, {100 * error:+.0f} %)"
        print(words, flush=True)
    print("\n".join(errors.lines("phases, %")))


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@command
def main(folder: Path, *, tables: Sequence[str] = ("hours", "totals")) -> None:
    if "hours" in tables:
        hours_table(folder)
    if "totals" in tables:
        totals_table(folder)
