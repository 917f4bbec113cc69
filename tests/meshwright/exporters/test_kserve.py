"""KServe's LLMInferenceService: its fields, and flags without defaults."""

from __future__ import annotations

import shlex

import pytest
import yaml

import meshwright as mw
from core.errors import InputError
from tests.examples import SERVED

WORKLOAD = {"replicas": int, "parallelism": dict, "template": dict, "worker": dict}
FIELDS = {**WORKLOAD, "model": dict, "router": dict, "prefill": dict}
DEGREES = {"tensor", "pipeline", "data", "dataLocal", "dataRPCPort", "expert"}
"""Fields of LLMInferenceServiceSpec, WorkloadSpec and ParallelismSpec that are written."""


def spec(deployment, **scenario):
    data = {**SERVED, **scenario, "deployment": {"engine": "vllm-0.33", **deployment}}
    (text,) = mw.export(data, "kserve").files.values()
    manifest = yaml.safe_load(text)
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "serving.kserve.io/v1alpha1",
        "LLMInferenceService",
    )
    written = manifest["spec"]
    for part, fields in ((written, FIELDS), (written.get("prefill", {}), WORKLOAD)):
        assert all(isinstance(value, fields[name]) for name, value in part.items())
        assert part.get("parallelism", {}).keys() <= DEGREES
    return written


def words(part):
    """Flags and GPUs of a workload's container."""
    (container,) = part["template"]["containers"]
    (variable,) = container["env"]
    assert (container["name"], variable["name"]) == ("main", "VLLM_ADDITIONAL_ARGS")
    return shlex.split(variable["value"]), container["resources"]["limits"]["nvidia.com/gpu"]


def test_a_pool_has_its_replicas_gpus_and_no_default_flag():
    written = spec({"tensor": 2, "replicas": 3})
    flags, gpus = words(written)
    assert (written["replicas"], gpus) == (3, "2")
    assert flags[flags.index("--tensor-parallel-size") + 1] == "2"
    for default in ("--stream-interval", "--block-size", "--dtype", "--enable-prefix-caching"):
        assert default not in flags
    assert "parallelism" not in written and "worker" not in written


def test_prefill_is_a_workload_of_its_own():
    pools = [
        {"name": "p", "role": "prefill", "tensor": 1, "replicas": 3},
        {"name": "d", "role": "decode", "tensor": 2, "replicas": 2},
    ]
    written = spec({"pools": pools})
    assert [part["replicas"] for part in (written["prefill"], written)] == [3, 2]
    for part, role in ((written["prefill"], "kv_producer"), (written, "kv_consumer")):
        flags, _ = words(part)
        assert role in flags[flags.index("--kv-transfer-config") + 1]


def test_several_nodes_are_stages_or_attention_ranks():
    stages = spec({"tensor": 8, "pipeline": 2}, model="llama3.1-405b")
    assert stages["parallelism"] == {"tensor": 8, "pipeline": 2}
    assert {"--nnodes", "--tensor-parallel-size"}.isdisjoint(words(stages)[0])
    assert stages["worker"]["containers"][0]["env"] == stages["template"]["containers"][0]["env"]
    experts = {"tensor": 1, "data": 16, "expert": 16, "weights": "fp8"}
    ranks = spec(experts, model="deepseek-v3", cluster="dgx-h200")
    assert ranks["parallelism"] == {"tensor": 1, "data": 16, "dataLocal": 8, "expert": True}
    with pytest.raises(InputError, match="k8s and dynamo write it"):
        spec({"tensor": 16}, model="llama3.1-405b")
