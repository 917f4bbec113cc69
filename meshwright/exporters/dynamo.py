"""NVIDIA Dynamo: a DynamoGraphDeployment with a frontend and one worker service per pool."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, flags, header, nested
from meshwright.exporters.serving import (
    deployment_gaps,
    family_of,
    label_of,
    pool_options,
)
from meshwright.exporters.table import Options, table

TABLE = "dynamo-1.6.yaml"
ENGINES = {"vllm": "vllm-0.33.yaml", "sglang": "sglang-0.5.23.yaml", "trtllm": "trtllm-1.2.yaml"}
IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
ROLE_FLAGS = ("--kv-transfer-config", "--disaggregation-mode", "cache_transceiver_config.backend")
"""Role options of a standalone engine; Dynamo's workers have one flag instead."""
NOTES = (
    "the checkpoint: replace MODEL by a path or a Hugging Face name; secret hf-token-secret if it is gated",
    "the registry of the images, node selectors, probes",
)
RELEASE = "1.6.1"


def write(question: ExportQuestion) -> Export:
    """The custom resource and its gaps."""
    setting, launcher = question.deployed(), table(TABLE)
    engine = family_of(setting, setting.pools[0]) or "vllm"
    gaps = deployment_gaps(setting, engine, placed=True)
    routed, more = launcher.write({"deployment.router": setting.deployment.router})
    gaps += more
    services: dict[str, Any] = {"Frontend": _frontend(routed)}
    for pool in setting.pools:
        options, more = pool_options(table(ENGINES[engine]), setting, pool)
        gaps += [gap for gap in more if gap not in gaps]
        options = {name: value for name, value in options.items() if name not in ROLE_FLAGS}
        nodes = setting.cluster.nodes_for(pool.pool.devices)
        count = min(pool.pool.devices, setting.cluster.devices_per_node)
        service: dict[str, Any] = {"componentType": "worker", "replicas": pool.pool.replicas}
        if pool.pool.role != "mixed":
            service["subComponentType"] = pool.pool.role
        if nodes > 1:
            service["multinode"] = {"nodeCount": nodes}
            options.pop("--nnodes", None)
        limits = {"gpu": str(count)}
        service["resources"] = {"requests": limits, "limits": dict(limits)}
        service["envFromSecret"] = "hf-token-secret"
        service["extraPodSpec"] = {"mainContainer": _container(engine, pool.pool.role, options)}
        services[f"{label_of(setting, pool).capitalize()}Worker"] = service
    if setting.cluster.device.generation.kubernetes != "nvidia.com/gpu":
        gaps.append(f"cluster.device = {setting.cluster.device.name}: Dynamo runs on NVIDIA GPUs")
    graph = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "meshwright"},
        "spec": {"services": services},
    }
    top = commented(
        header(question, f"{launcher.version} with {table(ENGINES[engine]).version}", (*gaps,), NOTES)
    )
    text = top + yaml.safe_dump(graph, sort_keys=False, width=10_000)
    return Export({"deployment.yaml": text}, tuple(gaps), NOTES, "kubectl apply -f deployment.yaml")


def _frontend(routed: Options) -> dict[str, Any]:
    arguments = " ".join(["python3 -m dynamo.frontend --http-port 8000", *flags(routed)])
    image = f"nvcr.io/nvidia/ai-dynamo/dynamo-frontend:{RELEASE}"
    shell = {"image": image, "command": ["/bin/sh", "-c"], "args": [arguments]}
    return {"componentType": "frontend", "replicas": 1, "extraPodSpec": {"mainContainer": shell}}


def _container(engine: str, role: str, options: Options) -> dict[str, Any]:
    mode = [] if role == "mixed" else [f"--disaggregation-mode {role}"]
    words = [f"python3 -m dynamo.{engine}"]
    if engine == "trtllm":
        written = yaml.safe_dump(nested(options), sort_keys=False)
        words = [f"printf %s {shlex.quote(written)} > /tmp/options.yaml &&", *words]
        words += ["--model-path MODEL", "--extra-engine-args /tmp/options.yaml"]
    else:
        words += ["--model MODEL" if engine == "vllm" else "--model-path MODEL", *flags(options)]
    image = f"nvcr.io/nvidia/ai-dynamo/{IMAGES[engine]}:{RELEASE}"
    return {"image": image, "command": ["/bin/sh", "-c"], "args": [" ".join([*words, *mode])]}


EXPORTER = Exporter("dynamo", "DynamoGraphDeployment", ("serving",), write, table=TABLE)
