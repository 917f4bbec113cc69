"""Kubernetes: an indexed Job for training; Deployments or LeaderWorkerSets with a Service for serving."""

from __future__ import annotations

from typing import Any

import yaml

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header
from meshwright.exporters.placing import placed_gaps, replica_nodes, wrapped
from meshwright.exporters.serving import file_of, resource_name

VERSION = "Kubernetes 1.31 (batch/v1, apps/v1, leaderworkerset.x-k8s.io/v1)"
NAME = "meshwright"
NOTES = ("the images, storage for data and checkpoints, network devices (rdma/...), node selectors",)
IMAGES = {
    "megatron-lm": "nvcr.io/nvidia/pytorch:25.09-py3",
    "torchtitan": "nvcr.io/nvidia/pytorch:25.09-py3",
    "deepspeed": "nvcr.io/nvidia/pytorch:25.09-py3",
    "vllm": "vllm/vllm-openai:v0.33.0",
    "sglang": "lmsysorg/sglang:v0.5.23",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.1",
}


def write(question: ExportQuestion) -> Export:
    """The manifests and their gaps."""
    target, made = wrapped(question)
    gaps, notes = placed_gaps(made), (*made.notes, *NOTES)
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": dict(made.files)}
    objects: list[dict[str, Any]] = [files]
    objects += _serving(question, target) if question.serves else _job(question, target, made.run)
    top = commented(header(question, f"{VERSION} and {target}", gaps, notes))
    text = top + yaml.safe_dump_all(objects, sort_keys=False, width=10_000)
    return Export({f"{NAME}.yaml": text}, gaps, notes, f"kubectl apply -f {NAME}.yaml")


def _job(question: ExportQuestion, target: str, run: str) -> list[dict[str, Any]]:
    """One pod per node; the first is the rendezvous."""
    cluster = question.training()[0].setting.cluster
    nodes = cluster.nodes_for(cluster.devices)
    count = min(cluster.devices_per_node, cluster.devices)
    environment = {"MASTER_ADDR": f"{NAME}-0.{NAME}", "MASTER_PORT": "29500", "NNODES": str(nodes)}
    script = f"NODE_RANK=$JOB_COMPLETION_INDEX {run}"
    resource = resource_name(cluster.device.generation)
    pod = _pod(target, script, environment, count, resource) | {"subdomain": NAME, "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": NAME},
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "backoffLimit": 0,
            "template": {"metadata": {"labels": {"app": NAME}}, "spec": pod},
        },
    }
    return [_service(NAME, 29500, headless=True), job]


def _serving(question: ExportQuestion, target: str) -> list[dict[str, Any]]:
    """A Deployment per pool, or a LeaderWorkerSet where a replica spans nodes, behind a Service."""
    setting, objects = question.deployed(), []
    resource = resource_name(setting.cluster.device.generation)
    for pool in setting.pools:
        name = NAME if len(setting.pools) == 1 else f"{NAME}-{file_of(setting, pool)[6:-3].lower()}"
        nodes, count = replica_nodes(question, pool)
        script = f"bash {file_of(setting, pool)}"
        if nodes > 1:
            script = f"NODE_RANK=$LWS_WORKER_INDEX MASTER_ADDR=$LWS_LEADER_ADDRESS {script}"
        spec = _pod(target, script, {"MODEL": "MODEL", "PORT": "8000"}, count, resource)
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": spec}
        if nodes > 1:
            group = {"size": nodes, "leaderTemplate": template, "workerTemplate": template}
            described = {"replicas": pool.pool.replicas, "leaderWorkerTemplate": group}
            objects.append(_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, described))
        else:
            described = {
                "replicas": pool.pool.replicas,
                "selector": {"matchLabels": labels},
                "template": template,
            }
            objects.append(_object("apps/v1", "Deployment", name, described))
        objects.append(_service(name, 8000))
    return objects


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _service(name: str, port: int, headless: bool = False) -> dict[str, Any]:
    spec: dict[str, Any] = {"selector": {"app": name}, "ports": [{"port": port, "targetPort": port}]}
    return _object("v1", "Service", name, {"clusterIP": "None", **spec} if headless else spec)


def _pod(target: str, script: str, environment: dict[str, str], count: int, resource: str) -> dict[str, Any]:
    """A pod that runs a script of the ConfigMap with all devices of a node's share."""
    limits = {resource: str(count)}
    container = {
        "name": "main",
        "image": IMAGES[target],
        "command": ["bash", "-c", f"cp /launch/* . && {script}"],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "resources": {"limits": limits},
        "volumeMounts": [
            {"name": "launch", "mountPath": "/launch"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    volumes = [
        {"name": "launch", "configMap": {"name": NAME}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    return {"containers": [container], "volumes": volumes}


EXPORTER = Exporter("k8s", "Kubernetes manifests with the launcher's files", ("training", "serving"), write)
