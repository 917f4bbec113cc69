"""Helm values of llm-d."""

from __future__ import annotations

import pytest
import yaml

import meshwright as mw
from core.errors import InputError
from tests.examples import SERVED

POOLS = [
    {"name": "prompts", "role": "prefill", "tensor": 1, "replicas": 3},
    {"name": "outputs", "role": "decode", "tensor": 2, "replicas": 2},
]


def values(deployment):
    files = mw.export({**SERVED, "deployment": {"engine": "vllm-0.19", **deployment}}, "llm-d").files
    return yaml.safe_load(files["values.yaml"])


def test_one_pool_decodes_behind_no_proxy():
    written = values({"tensor": 2, "replicas": 4})
    assert written["prefill"] == {"create": False}
    assert written["routing"]["proxy"]["enabled"] is False
    decode = written["decode"]
    assert (decode["replicas"], decode["parallelism"]["tensor"]) == (4, 2)
    (container,) = decode["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    for default in ("--tensor-parallel-size", "--pipeline-parallel-size", "--stream-interval"):
        assert default not in container["args"]
    assert "--max-num-batched-tokens" in container["args"]


def test_two_pools_are_prefill_and_decode_behind_the_proxy():
    written = values({"pools": POOLS})
    assert [written[name]["replicas"] for name in ("prefill", "decode")] == [3, 2]
    assert written["routing"]["proxy"] == {"enabled": True, "targetPort": 8200}
    assert "--kv-transfer-config" in written["prefill"]["containers"][0]["args"]


def test_stages_are_flags_and_nodes_are_refused():
    decode = values({"tensor": 2, "pipeline": 2})["decode"]
    assert "parallelism" not in decode
    assert decode["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert "--tensor-parallel-size" in decode["containers"][0]["args"]
    with pytest.raises(InputError, match="k8s and dynamo write it"):
        values({"tensor": 8, "pipeline": 2})
