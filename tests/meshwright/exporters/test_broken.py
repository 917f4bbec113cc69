"""Broken launch files are refused with a message, never with a fault."""

from __future__ import annotations

import json
import math
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from core.errors import InputError, MeshwrightError
from meshwright.exporters import export
from meshwright.exporters.imports import read_launch
from meshwright.jobs.exports import from_scenario, question_of

SCENARIO = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 64,
    "workload": {"seq_len": 4096, "global_batch": 512},
    "plan": {"tensor": 2, "pipeline": 4, "first_stage_layers": 6, "last_stage_layers": 6, "zero": 1},
}
PIECES = ("-1", "9" * 30, "$X", "${", "$((", "[1]*9", "null", "true", "'", '"', "(", ")", "--", "nan", "\x00")
PIECES += ("é", "|", "t*9999", "E|t|L", "a=b", "if", "fi", "[[", "#", "\\", "{}", "[]", "inf")


def broken(text: str, rng: random.Random) -> str:
    """A text with a word replaced, a piece put in, a line doubled or lost, or its end cut off."""
    kind = rng.randrange(4)
    words = [match.span() for match in re.finditer(r"[\w.\-]+", text)]
    if kind == 0 and words:
        start, end = rng.choice(words)
        return text[:start] + rng.choice(PIECES) + text[end:]
    if kind == 1:
        place = rng.randrange(len(text))
        return text[:place] + rng.choice(PIECES) + text[place:]
    if kind == 2:
        lines = text.split("\n")
        number = rng.randrange(len(lines))
        lines[number : number + 1] = [lines[number]] * rng.choice([0, 2])
        return "\n".join(lines)
    return text[: rng.randrange(len(text))]


@pytest.mark.parametrize("target", ["megatron-lm", "megatron-bridge", "deepspeed", "torchtitan"])
def test_broken_files_are_refused(target, tmp_path):
    rng = random.Random(target)
    name, whole = next(iter(export(from_scenario(SCENARIO, "test", Path(), "test"), target).files.items()))
    asked = {"cluster": "dgx-h100", "gpus": 64}
    if target == "deepspeed":
        asked |= {"model": "llama3.1-8b", "seq_len": 4096}
    for _ in range(40):
        text = broken(whole, rng)
        (tmp_path / name).write_text(broken(text, rng) if text and rng.random() < 0.5 else text, "utf-8")
        with suppress(MeshwrightError):
            read_launch(str(tmp_path / name), stated=asked)


SAVED: dict[str, Any] = {
    "question": {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 4, "output_tokens": 100, "rate": 4.0},
    "deployments": [{"gpus": 2, "deployment": {"engine": "vllm-0.19", "tensor": 2}}],
}


def _saved(tokens: object) -> str:
    return json.dumps({**SAVED, "question": {**SAVED["question"], "prompt_tokens": tokens}})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"question": {}, "plans": [' + "1" * 5000 + "]}", "not valid JSON"),
        (json.dumps(SAVED)[:-9], "not valid JSON"),
        *(
            (_saved(value), "question.prompt_tokens: a number is needed")
            for value in (["x"], "many", math.inf)
        ),
        (_saved(10**400), "tokens"),
    ],
)
def test_broken_saved_searches_are_refused(text, told, tmp_path):
    path = tmp_path / "found.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        question_of(str(path))
    assert told in str(error.value)


TRAIN = "python pretrain_gpt.py --num-layers 2"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("A=" + '"' * 3000 + f" x\n{TRAIN}", "does not state"),
        ("A=" + "'" * 3000 + f" x\n{TRAIN}", "does not state"),
        (
            "\n".join(f"A{i}=$A{i + 1}$A{i + 1}" for i in range(60)) + f"\nB=$A0\n{TRAIN} $A0",
            "expands? to more",
        ),
        ("\n".join(f"A{i + 1}=$A{i}$A{i}" for i in range(60)) + f"\n{TRAIN} $A59", "expands? to more"),
        ("A=(\n" + "x\n" * 100_000 + TRAIN, "never closed"),
        ('A="\n' + "x\n" * 100_000 + TRAIN, "never closed"),
        ("X=" + "y" * 400_000 + f"\n{TRAIN}" + " $X" * 150_000, "never closed"),
        ("X=" + "y" * 90_000 + f"\n{TRAIN}" + " $X" * 30_000, "expands? to more"),
        ("if " + " " * 90_000 + f"x\n{TRAIN}", "no command that starts training"),
        (TRAIN + " x" * 600_000, "is longer than 1,000,000 characters"),
    ],
)
def test_scripts_that_grow_without_end_are_refused(script, told):
    with pytest.raises(InputError, match=told):
        read_launch(script, target="megatron-lm")


@pytest.mark.parametrize("text", ["x = 1e999", "[training]\nseq_len = " + "9" * 5000, "a = " + "[" * 3000])
def test_numbers_and_depth_of_toml_are_bounded(text, tmp_path):
    path = tmp_path / "train.toml"
    path.write_text(f"[parallelism]\ntensor_parallel_degree = 1\n{text}\n", encoding="utf-8")
    with pytest.raises(InputError):
        read_launch(str(path), target="torchtitan", stated={"cluster": "dgx-h100"})


def test_configurations_that_name_each_other_are_bounded(tmp_path):
    lines = [f"    v{i} = C(a=v{i + 1}, b=v{i + 1})" for i in range(40)]
    body = "\n".join(["    v40 = C(a=1)", *reversed(lines)])
    path = tmp_path / "config.py"
    path.write_text(f"def plan() -> Trainer.Config:\n{body}\n    return Trainer.Config(training=v0)\n")
    with pytest.raises(InputError, match="more than 10,000 values"):
        read_launch(str(path), target="torchtitan", stated={"cluster": "dgx-h100"})
