"""State fields of a plan in launch files: DeepSpeed's keys, and gaps elsewhere."""

import json
from pathlib import Path

import pytest

from meshwright.exporters import export
from meshwright.exporters.imports import read_launch
from meshwright.jobs.exports import from_scenario
from simulator.plan import Plan

ZEROPP = {
    "wire": {"gather": "int8", "reduce": "int4", "reduce_hops": 2},
    "shard": {"copy_parameters": "node"},
}
FRAMEWORKS = {
    "deepspeed": "deepspeed-zero3",
    "torchtitan": "torchtitan",
    "megatron-lm": "megatron-core",
    "megatron-bridge": "megatron-bridge",
}


def files(target="deepspeed", **plan):
    scenario = {
        "model": "llama3-8b",
        "cluster": "dgx-a100-80gb",
        "gpus": 16,
        "workload": {"seq_len": 2048, "global_batch": 16, "precision": "fp16"},
        "framework": FRAMEWORKS[target],
        "plan": {"zero": 3, "recompute": "full", **plan},
    }
    return export(from_scenario(scenario, "test", Path(), "test"), target)


def config(**plan):
    return json.loads(files(**plan).files["ds_config.json"])["zero_optimization"]


def test_zero_plus_plus_is_three_keys():
    found = config(**ZEROPP)
    assert found["zero_quantized_weights"] and found["zero_quantized_gradients"]
    assert found["zero_hpz_partition_size"] == 8


def test_offload_names_tier_and_ratio():
    found = config(place={"optimizer": {"host": 0.25}, "parameters": {"nvme": 1.0}}, update={"on": "host"})
    assert found["offload_optimizer"] == {"device": "cpu", "pin_memory": True, "ratio": 0.25}
    assert found["offload_param"]["device"] == "nvme"


def test_a_plan_without_state_fields_has_no_such_key():
    assert not {"offload_optimizer", "zero_hpz_partition_size"} & set(config())


@pytest.mark.parametrize(
    ("target", "plan", "gap"),
    [
        ("deepspeed", {"place": "zero-offload-delayed"}, "plan.update.delayed"),
        ("deepspeed", {"place": {"activations": {"host": 0.5}}}, "plan.place.activations"),
        ("deepspeed", {"sync": {"every": 10}}, "plan.sync"),
        ("torchtitan", {"place": "zero-infinity", "sequence_parallel": False}, "plan.place"),
    ],
)
def test_what_a_launcher_lacks_is_named(target, plan, gap):
    assert any(each.startswith(gap) for each in files(target, **plan).gaps)


@pytest.mark.parametrize(
    ("target", "plan", "fields"),
    [
        ("deepspeed", ZEROPP, ("wire", "shard")),
        (
            "deepspeed",
            {
                "place": {
                    "optimizer": {"host": 0.25, "unit": "sub-group"},
                    "gradients": {"host": 1.0, "prefetch": 0},
                    "parameters": {"nvme": 1.0},
                },
                "update": {"on": "host"},
            },
            ("place", "update"),
        ),
        (
            "megatron-lm",
            {
                "place": {"optimizer": {"host": 0.5}},
                "update": {"on": "host", "master_on_device": True, "pipelined": False},
                "zero": 1,
            },
            ("place", "update"),
        ),
        (
            "megatron-bridge",
            {
                "place": {"optimizer": {"host": 0.75}},
                "update": {"on": "host", "master_on_device": True},
                "zero": 1,
            },
            ("place", "update"),
        ),
        (
            "torchtitan",
            {
                "place": {kind: {"host": 1.0} for kind in ("parameters", "gradients", "optimizer")},
                "update": {"on": "host"},
                "sequence_parallel": False,
            },
            ("place", "update"),
        ),
    ],
)
def test_state_fields_come_back_from_launch_files(tmp_path, target, plan, fields):
    made = files(target, **plan)
    for name, text in made.files.items():
        (tmp_path / name).write_text(text)
    first = "ds_config.json" if target == "deepspeed" else next(iter(made.files))
    asked = {"model": "llama3-8b", "cluster": "dgx-a100-80gb", "gpus": 16, "seq_len": 2048}
    asked |= {"global_batch": 16, "precision": "fp16" if target == "deepspeed" else None}
    back = read_launch(str(tmp_path / first), target=target, stated=asked)
    was, found = (Plan.model_validate(each) for each in ({"zero": 3, **plan}, back.scenario["plan"]))
    assert [getattr(found, name) for name in fields] == [getattr(was, name) for name in fields]
    assert not any("offload" in name or "quantized" in name or "hpz" in name for name in back.aside)


HYBRID = {"place": {"optimizer": {"host": 0.5}}, "update": {"on": "host", "master_on_device": True}}


def test_megatron_offloads_a_fraction_of_its_optimizer():
    text = "".join(files("megatron-lm", **HYBRID, zero=1).files.values())
    for words in (
        "--optimizer-cpu-offload",
        "--optimizer-offload-fraction 0.5",
        "--overlap-cpu-optimizer-d2h",
    ):
        assert words in text
    in_turn = {**HYBRID, "update": {**HYBRID["update"], "pipelined": False}}
    assert "--overlap-cpu" not in "".join(files("megatron-lm", **in_turn, zero=1).files.values())
    bridge = "".join(files("megatron-bridge", **HYBRID, zero=1).files.values())
    assert "optimizer.optimizer_cpu_offload=true" in bridge.replace("True", "true")
    assert not [
        gap for gap in files("megatron-lm", **HYBRID, zero=1).gaps if "place" in gap or "update" in gap
    ]


def test_torchtitan_offloads_everything_or_nothing():
    whole = {"parameters": {"host": 1.0}, "gradients": {"host": 1.0}, "optimizer": {"host": 1.0}}
    made = files("torchtitan", place=whole, update={"on": "host"}, sequence_parallel=False)
    assert "enable_cpu_offload" in "".join(made.files.values())
    assert not any(gap.startswith("plan.place") for gap in made.gaps)
    part = files(
        "torchtitan", place={"optimizer": {"host": 1.0}}, update={"on": "host"}, sequence_parallel=False
    )
    assert any(gap.startswith("plan.place") for gap in part.gaps)


def test_megatron_names_what_its_optimizer_lacks():
    gaps = files("megatron-lm", place="zero-offload-delayed", zero=1).gaps
    for key in ("plan.place.gradients", "plan.update.delayed", "plan.update.master_on_device"):
        assert any(gap.startswith(key) for gap in gaps)
