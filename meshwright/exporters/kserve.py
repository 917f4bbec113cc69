"""KServe: an LLMInferenceService, with only the flags that differ from vLLM's defaults.

Fields as in KServe (pkg/apis/serving/v1alpha1/llm_inference_service_types.go). Its own templates
(config/llmisvcconfig) start vLLM with the model, the port and what ``VLLM_ADDITIONAL_ARGS`` holds; where a
replica spans nodes, they start a LeaderWorkerSet and write the degrees of ``parallelism`` themselves.
"""

from __future__ import annotations

from typing import Any

import yaml

from core.errors import InputError
from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, flags, header
from meshwright.exporters.placing import replica_nodes
from meshwright.exporters.serving import deployment_gaps, family_of, pool_options
from meshwright.exporters.table import Options, table
from simulator.serving.setting import PoolSetting

ENGINE = "vllm-0.33.yaml"
VERSION = "KServe 0.17 (serving.kserve.io/v1alpha1)"
FILE, MODEL, NAME = "llm-inference-service.yaml", "MODEL", "meshwright"
BY_TEMPLATE = (
    "--nnodes",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--enable-expert-parallel",
)
"""Flags that KServe's templates of several nodes write from ``parallelism``."""
NOTES = (
    f"the checkpoint: replace {MODEL} by its name on Hugging Face; a secret with HF_TOKEN if it is gated",
    "the release of vLLM is that of KServe's template, or of an image of yours; CPU and memory of the pods",
)


def write(question: ExportQuestion) -> Export:
    """The manifest and its gaps.

    Raises:
        InputError: several decode pools, or a replica whose nodes KServe cannot start.
    """
    setting, launcher = question.deployed(), table(ENGINE)
    gaps = deployment_gaps(setting, "vllm", placed=True)
    if family_of(setting, setting.pools[0]) in ("", "vllm"):
        router = setting.deployment.router
        gaps.append(f"deployment.router = {router}: KServe's scheduler routes, by its default configuration")
    spec: dict[str, Any] = {"model": {"uri": f"hf://{MODEL}", "name": MODEL}}
    for pool in setting.pools:
        options, more = pool_options(launcher, setting, pool)
        gaps += [gap for gap in more if gap not in gaps]
        part = _workload(question, pool, options)
        if pool.pool.role == "prefill":
            spec["prefill"] = part
        elif "template" in spec:
            raise InputError("KServe has one pool for decodes; k8s and dynamo write several", "--to")
        else:
            spec |= part
    spec["router"] = {"route": {}, "gateway": {}, "scheduler": {}}
    service = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "LLMInferenceService",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    lines = header(question, f"{VERSION} with {launcher.version}", (*gaps,), NOTES)
    text = commented(lines) + yaml.safe_dump(service, sort_keys=False, width=10_000)
    return Export({FILE: text}, tuple(gaps), NOTES, f"kubectl apply -f {FILE}")


def _workload(question: ExportQuestion, pool: PoolSetting, options: Options) -> dict[str, Any]:
    """A pool: replicas, degrees, and the container with its flags and GPUs."""
    nodes, count = replica_nodes(question, pool)
    resource = pool.cluster.device.generation.kubernetes
    if nodes > 1:
        options = {name: value for name, value in options.items() if name not in BY_TEMPLATE}
    container: dict[str, Any] = {"name": "main"}
    if options:
        container["env"] = [{"name": "VLLM_ADDITIONAL_ARGS", "value": " ".join(flags(options))}]
    container["resources"] = {key: {resource: str(count)} for key in ("limits", "requests")}
    part: dict[str, Any] = {"replicas": pool.pool.replicas}
    if nodes > 1:
        part["parallelism"] = _degrees(pool, nodes, count)
        part["worker"] = {"containers": [{"name": "main", "resources": container["resources"]}]}
        if options:
            part["worker"]["containers"][0]["env"] = container["env"]
    return {**part, "template": {"containers": [container]}}


def _degrees(pool: PoolSetting, nodes: int, count: int) -> dict[str, Any]:
    """Degrees of a replica on several nodes: a stage a node, or as many attention ranks on each.

    Raises:
        InputError: tensor parallelism crosses nodes, or both kinds are mixed.
    """
    shape = pool.pool
    if shape.data == 1 and shape.pipeline == nodes and shape.tensor == count:
        return {"tensor": shape.tensor, "pipeline": shape.pipeline}
    if shape.pipeline == 1 and shape.data % nodes == 0:
        degrees: dict[str, Any] = {"tensor": shape.tensor, "data": shape.data}
        degrees["dataLocal"] = shape.data // nodes
        return {**degrees, **({"expert": True} if shape.expert > 1 else {})}
    raise InputError(
        f"KServe starts a stage or whole attention ranks on each node; pool {pool.name} has TP{shape.tensor} "
        f"PP{shape.pipeline} DP{shape.data} on {nodes} nodes: k8s and dynamo write it",
        "--to",
    )


EXPORTER = Exporter("kserve", "KServe manifest (LLMInferenceService)", ("serving",), write)
