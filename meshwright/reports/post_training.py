"""A step of post-training, as tables and under the keys of docs/json.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import counted, gibibytes, percent, seconds, significant
from simulator.rl.lanes import ALL, GENERATE, TRAIN
from simulator.rl.memory import RlMemory, lacking
from simulator.rl.step import RlStep

WORDS = {
    "generation": "rollouts",
    "scoring": "forward passes over answers",
    "update": "updates",
    "weights": "weights to the rollout engine",
    "state": "trainer's state out and back",
    "host": "hosts",
    "resume": "KV of running answers again",
    "environment": "calls of environments",
}
"""Phases in the order of a step."""
DEVICES = {"train": TRAIN, "generate": GENERATE, "all": ALL}
"""Devices by the role that holds them."""
HOUR = 3600.0


def describe_rl(step: RlStep) -> dict[str, Any]:
    """The answer of a scenario of post-training, with documented keys."""
    setting, phases = step.setting, step.phases
    pool, training = setting.rollouts.pools[0].pool, setting.trainer.training
    answers = setting.workload.answers
    return {
        "title": setting.title,
        "model": setting.model.name,
        "cluster": setting.cluster.name,
        "device": setting.cluster.device.name,
        "gpus": setting.cluster.devices,
        "framework": setting.framework.name,
        "algorithm": setting.algorithm.name,
        "schedule": setting.schedule.model_dump(mode="json"),
        "train": {
            "framework": setting.trainer.framework.name,
            "gpus": setting.trainer.cluster.devices,
            "plan": setting.plan.model_dump(mode="json"),
            "packing": training.packing,
            "rows": training.global_batch,
            "row_tokens": training.seq_len,
        },
        "generate": {
            "engine": pool.engine if isinstance(pool.engine, str) else "inline",
            "gpus": pool.devices * pool.replicas,
            "replicas": pool.replicas,
            "tensor": pool.tensor,
        },
        "answers": answers,
        "tokens": step.tokens,
        "step_time_s": step.timing.seconds,
        "band_s": [step.timing.seconds * (1 + sign * step.half_width) for sign in (-1, 1)],
        "phases_s": {name: getattr(phases, name) for name in (*WORDS, "busy_generation")},
        "weights_s": {each.name: getattr(step.move, each.name) for each in fields(step.move)},
        "passes_s": step.passes,
        "environment_cores": step.cores,
        "memory": {**asdict(step.memory), "fits": step.memory.fits},
        "idle_share": step.timing.idle,
        "binding": step.timing.binding,
        "tokens_per_s_per_gpu": step.tokens_per_s_per_device,
        "answers_per_hour": answers_per_hour(step),
        "usd_per_thousand_answers": step.usd / answers * 1000,
    }


def rl_facts(step: RlStep) -> dict[str, str]:
    """What decides a step, and its figures, in words."""
    setting, answers = step.setting, step.setting.workload.answers
    pool, training = setting.rollouts.pools[0].pool, setting.trainer.training
    split = setting.schedule.split
    places = "in turn on the same devices"
    if split is not None:
        places = f"on {split.train} and {split.generate} devices"
    engine = pool.engine if isinstance(pool.engine, str) else "own engine"
    verdict = f"{WORDS[step.timing.binding]} decide"
    if not step.memory.fits:
        verdict = f"does not fit: {lacking(step.memory)}; `plan rl` finds layouts that fit"
    calls = {}
    if step.cores is not None and setting.environments is not None:
        there = setting.environments.node_cores
        calls = {"environments": f"{step.cores:,.0f} cores a node keep up with rollouts; there are {there:,}"}
    return {
        "verdict": verdict,
        "step": f"{seconds(step.timing.seconds)} ± {percent(step.half_width, 0)} for {answers:,} answers "
        f"({counted(round(step.tokens))} tokens)",
        "throughput": f"{step.tokens_per_s_per_device:,.0f} tokens/s/GPU, "
        f"{answers_per_hour(step):,.0f} answers an hour",
        "price": f"{significant(step.usd / answers * 1000)} $ a thousand answers",
        "system": f"{setting.framework.title}, {setting.algorithm.title}",
        "schedule": f"{setting.schedule.kind}, trainer and rollouts {places}",
        "trainer": f"{setting.plan.describe()}, {training.global_batch:,} rows of {training.seq_len:,} "
        f"tokens an update ({training.packing})",
        "rollouts": f"{pool.replicas} x {engine}, TP{pool.tensor}",
        "memory": memory_words(step.memory),
        **calls,
        "idle": ", ".join(f"{DEVICES[role]} {percent(share)}" for role, share in step.timing.idle.items()),
    }


def memory_words(memory: RlMemory) -> str:
    """Memory of a device in both halves."""
    trainer, rollouts = gibibytes(memory.trainer), gibibytes(memory.rollouts)
    return f"trainer {trainer}, rollouts {rollouts} of {gibibytes(memory.capacity)}"


def rl_verdict(step: RlStep) -> list[str]:
    """A step in parts of a sentence: how long it is, its answers and their price, and what decides it."""
    price = f"{significant(step.usd / step.setting.workload.answers * 1000)} $ per 1,000 of them"
    split = step.setting.schedule.split
    where = places(step) if split else f"{step.setting.cluster.devices} GPUs shared by trainer and rollouts"
    return [
        f"{where}: {seconds(step.timing.seconds)} a step ± {percent(step.half_width, 0)}",
        f"{answers_per_hour(step):,.0f} answers/h",
        price,
        f"{WORDS[step.timing.binding]} decide" if step.memory.fits else "does not fit",
    ]


def rl_tables(step: RlStep) -> list[Table | str]:
    """A step for people: a verdict, its figures, and its phases."""
    rows = [
        [WORDS[name], seconds(getattr(step.phases, name))] for name in WORDS if getattr(step.phases, name)
    ]
    said = ("step", "price", *(["verdict"] if step.memory.fits else []))
    figures = {name: words for name, words in rl_facts(step).items() if name not in said}
    return [
        "\n".join(fitted(rl_verdict(step))),
        facts(figures, step.setting.title),
        table(("phase", "time"), rows, "Phases of a step", left=1),
    ]


ROLES = {
    "fp8": "rollouts in fp8",
    "all": "a node more",
    "train": "a node more for the trainer",
    "generate": "a node more for rollouts",
}


def ranked_rl(steps: Sequence[RlStep], more: Mapping[str, float]) -> list[Table | str]:
    """A ranking for people: the first plan, what a node more brings, and a plan a line."""
    best = steps[0]
    gains = ", ".join(f"{ROLES[role]} {100 * share:+.1f} %" for role, share in more.items())
    verdict = fitted(rl_verdict(best), [f"Answers/h with {gains}."] if gains else [])
    rows = []
    layouts = [_layouts(step) for step in steps]
    for rank, (step, layout) in enumerate(zip(steps, layouts, strict=True), start=1):
        setting, answers, rollouts = step.setting, step.setting.workload.answers, layout[-1]
        if layouts.count(layout) > 1:
            rollouts += f", share {setting.rollouts.pools[0].options.memory_share:g}"
        rows.append(
            [
                str(rank),
                *layout[:-1],
                rollouts,
                WORDS[step.timing.binding],
                seconds(step.timing.seconds),
                f"{answers_per_hour(step):,.0f}",
                significant(step.usd / answers * 1000),
            ]
        )
    headings = ("rank", "devices", "trainer", "rollouts", "decided by", "step", "answers/h", "$/1,000")
    return ["\n".join(verdict), table(headings, rows, best.setting.title, left=5)]


def _layouts(step: RlStep) -> tuple[str, str, str]:
    """Devices, layout of the trainer and replicas of the rollouts, in words."""
    pool = step.setting.rollouts.pools[0].pool
    return places(step), step.setting.plan.describe(), f"{pool.replicas} x TP{pool.tensor}"


def answers_per_hour(step: RlStep) -> float:
    """Answers that the job trains on in an hour."""
    return step.setting.workload.answers / step.timing.seconds * HOUR


def places(step: RlStep) -> str:
    """Devices of both roles, in words."""
    split = step.setting.schedule.split
    if split is None:
        return f"{step.setting.cluster.devices} shared"
    return f"{split.train} train + {split.generate} generate, {step.setting.schedule.kind}"
