"""A question of post-training: a scenario, or a model and a cluster with the workload of a shipped one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import InputError
from meshwright.questions.numbers import whole_number
from meshwright.questions.scenarios import read_question
from simulator.scenario import changed

EXAMPLE = "rl-qwen3-30b"
"""Shipped scenario whose workload stands for one that flags do not state."""
NEEDED = ("model", "cluster", "gpus")
KEYS = {**{name: name for name in (*NEEDED, "framework")}, "isl": "workload.input"}
"""Key of a scenario for each flag; answers are drawn, ``--osl`` is their median."""


def rl_question(
    scenario: str | Path | Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], str, Path]:
    """The keys of the question, its name in errors, and the folder of its paths.

    Args:
        scenario: file, shipped name or mapping; empty to ask by arguments alone.
        arguments: model, cluster, gpus, framework, isl and osl; None where not stated.

    Raises:
        InputError: no such scenario, or an argument that is missing or wrong.
    """
    stated = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(gpus := stated.get("gpus"), str):
        stated["gpus"] = whole_number(gpus, "--gpus")
    missing = [name for name in NEEDED if name not in stated]
    if not scenario and missing:
        flags = " ".join(f"--{name}" for name in missing)
        raise InputError(
            f"{flags} missing; give a scenario (meshwright plan rl {EXAMPLE}), or a model on a cluster: "
            "meshwright plan rl --model qwen3-8b --cluster dgx-h100 --gpus 16"
        )
    if isinstance(scenario, Mapping):
        data, where, folder = dict(scenario), "scenario", Path()
    else:
        data, where, folder = read_question(str(scenario) or EXAMPLE)
    if not scenario:
        data = {"title": f"Post-training of {stated['model']}", "workload": data["workload"]}
        where, folder = "plan rl", Path()
    elif stated:
        data = {key: value for key, value in data.items() if key != "title"}
    for name, value in stated.items():
        if name != "osl":
            data = changed(data, KEYS[name], value, where)
    if (median := stated.get("osl")) is not None:
        data = changed(data, "workload.output", _answers(median), where)
    return data, where, folder


def _answers(median: int) -> dict[str, Any]:
    """Answers drawn with the spread and the cut of the shipped scenario, around another median."""
    shipped = read_question(EXAMPLE)[0]["workload"]["output"]
    return {**shipped, "median": median, "most": max(round(median * shipped["most"] / shipped["median"]), 1)}


def workload_words(workload: Mapping[str, Any]) -> str:
    """The workload that stands for one that is not stated, in a line."""
    answers, prompts = workload["output"], f"{workload['prompts']} prompts x {workload['samples']} answers"
    return (
        f"{workload['algorithm'].upper()}, {prompts}, {workload['input']} tokens in, "
        f"{answers['median']:,} out in the median, {answers['most']:,} at most "
        f"(as {EXAMPLE}; --isl, --osl, or a scenario that --save writes, state others)"
    )
