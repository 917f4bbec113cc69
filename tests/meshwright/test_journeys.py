"""Steps that users take one after the other: saved plans are sized, launch files imported and exported."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from core.loading import read_mapping
from meshwright.exporters import exporter
from planner.training.sizing import Size, Sizing

ASKED = [
    "--model",
    "llama3.1-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "64",
    "--seq-len",
    "8k",
    "--global-batch",
    "128",
]


@pytest.fixture
def saved(run, tmp_path, monkeypatch):
    """A plan saved in another folder than the current one."""
    monkeypatch.chdir(tmp_path)
    Path("x").mkdir()
    assert run("plan", *ASKED, "--save", "x/plan.yaml").code == 0
    return "x/plan.yaml"


def test_a_saved_plan_is_sized(run, saved):
    found = run("plan", "size", saved, "--tokens", "2T", "--gpus", "32..64")
    assert found.code == 0, found.err
    assert "64" in found.out


def test_no_size_in_time_names_one_that_would_be(run, saved):
    found = run("plan", "size", saved, "--tokens", "2T", "--days", "3", "--gpus", "32..64")
    assert found.code == 1
    assert "64 GPUs of dgx-h100 take" in found.err and "would meet them" in found.err


def test_paths_of_the_command_line_start_at_the_current_folder(run, saved):
    from hwmodels.cluster import clusters

    written = clusters.get("dgx-h100").model_dump(mode="json", exclude={"devices"})
    Path("mine.yaml").write_text(yaml.safe_dump({**written, "name": "mine"}))
    assert run("export", saved, "--to", "megatron-lm", "-o", "x").code == 0
    read = run("import", "x/train.sh", "--cluster", "mine.yaml", "-o", "y/scenario.yaml")
    assert read.code == 0, read.err
    assert read_mapping(Path("y/scenario.yaml"))["cluster"] == "../mine.yaml"
    # Megatron Core keeps gradients in 32 bits: sharded, they fit.
    assert run("simulate", "y/scenario.yaml", "--fix", "zero=2").code == 0
    assert run("simulate", saved, "--cluster", "mine.yaml").code == 0


def test_the_tokens_of_an_imported_run_are_told(run, saved):
    assert run("export", saved, "--to", "megatron-lm", "-o", "x").code == 0
    script = Path("x/train.sh").read_text().replace("--bf16", "--bf16 --train-iters 1000")
    Path("x/run.sh").write_text(script)
    read = run("import", "x/run.sh", "--cluster", "dgx-h100")
    assert "the run trains 1.05e+09 tokens" in read.err


@pytest.mark.parametrize(
    ("usual", "target"),
    [("nemo", "megatron-bridge"), ("Megatron", "megatron-lm"), ("tensorrt-llm", "trtllm")],
)
def test_usual_names_of_targets(usual, target):
    assert exporter(usual).name == target


def test_abbreviations_of_plan_fields_are_keys(run, saved):
    changed = run("whatif", saved, "--set", "tp=2")
    assert changed.code == 0, changed.err
    assert "tp 2" in changed.out and "cannot be run" not in changed.out


def test_devices_for_a_deadline_follow_the_last_two_sizes():
    def size(gpus: int, days: float) -> Size:
        return Size("c", gpus, None, "", days=days, usd=1.0)

    linear = Sizing(1e12, 10.0, [size(64, 80.0), size(128, 40.0)])
    assert linear.devices_for(10.0) == 520  # 512, rounded up to two digits
    flat = Sizing(1e12, 10.0, [size(64, 41.0), size(128, 40.0)])
    assert flat.devices_for(10.0) is None


def test_an_export_to_another_framework_prints_its_prediction(run, saved):
    exported = run("export", saved, "--to", "torchtitan", "-o", "t")
    assert "megatron-bridge (the plan's)" in exported.err and "torchtitan (these files)" in exported.err
    assert "fits with" in exported.err
    own = run("export", saved, "--to", "megatron-bridge", "-o", "b")
    assert "these files" not in own.err


@pytest.mark.slow
def test_three_commands_from_nothing_to_a_launch_file_that_parses(tmp_path):
    """README's plan, its export, and the launcher's options, in processes with an empty home."""
    import os
    import subprocess
    import sys

    def command(*words: str) -> str:
        environment = {
            **os.environ,
            "HOME": str(tmp_path / "home"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        asked = [sys.executable, "-m", "meshwright", *words]
        ran = subprocess.run(
            asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    command("plan", "train", *ASKED, "--save", "plan.yaml")
    command("export", "plan.yaml", "--to", "megatron-lm", "-o", "launch")
    again = command("import", "launch/train.sh", "--cluster", "dgx-h100")
    plan, read = read_mapping(tmp_path / "plan.yaml")["plan"], yaml.safe_load(again)["plan"]
    assert {name: read.get(name, plan[name]) for name in ("data", "zero", "micro_batch")} == {
        name: plan[name] for name in ("data", "zero", "micro_batch")
    }
