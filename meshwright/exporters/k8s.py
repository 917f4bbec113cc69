"""Kubernetes: an indexed Job for training; Deployments or LeaderWorkerSets with a Service for serving."""

from __future__ import annotations

from typing import Any

import yaml

from core.errors import InputError
from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, flags, header
from meshwright.exporters.placing import placed_gaps, replica_nodes, wrapped
from meshwright.exporters.routers import BOOTSTRAP_OFFSET, PROGRAMS, needs_router, router_options
from meshwright.exporters.serving import file_of, label_of
from simulator.serving.setting import PoolSetting, ServingSetting

VERSION = "Kubernetes 1.31 (batch/v1, apps/v1, leaderworkerset.x-k8s.io/v1)"
NAME = "meshwright"
NOTES = ("the images, storage for data and checkpoints, network devices (rdma/...), node selectors",)
IMAGES = {
    "megatron-lm": "nvcr.io/nvidia/pytorch:25.09-py3",
    "megatron-bridge": "nvcr.io/nvidia/nemo:25.11",
    "torchtitan": "nvcr.io/nvidia/pytorch:25.09-py3",
    "deepspeed": "nvcr.io/nvidia/pytorch:25.09-py3",
    "vllm": "vllm/vllm-openai:v0.33.0",
    "sglang": "lmsysorg/sglang:v0.5.23",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.1",
}

ROUTER_IMAGE = "python:3.12-slim"


class _Plain(yaml.SafeDumper):
    """YAML without anchors, which people would have to resolve."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write every part in full."""
        return True


def write(question: ExportQuestion) -> Export:
    """The manifests and their gaps."""
    target, launch = wrapped(question)
    if target not in IMAGES:
        raise InputError(f"k8s knows no image that runs {target}; export to {target} itself", "--to")
    gaps, notes = placed_gaps(launch), (*launch.notes, *NOTES)
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": dict(launch.files)}
    objects: list[dict[str, Any]] = [files]
    objects += _serving(question, target) if question.serves else _job(question, target, launch.run)
    top = commented(header(question, f"{VERSION} and {target}", gaps, notes))
    text = top + yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=10_000)
    return Export({f"{NAME}.yaml": text}, gaps, notes, f"kubectl apply -f {NAME}.yaml")


def _job(question: ExportQuestion, target: str, run: str) -> list[dict[str, Any]]:
    """One pod per node; the first is the rendezvous."""
    cluster = question.training()[0].setting.cluster
    nodes = cluster.nodes_for(cluster.devices)
    count = min(cluster.devices_per_node, cluster.devices)
    environment = {"MASTER_ADDR": f"{NAME}-0.{NAME}", "MASTER_PORT": "29500", "NNODES": str(nodes)}
    script = f"NODE_RANK=$JOB_COMPLETION_INDEX {run}"
    resource = cluster.device.generation.kubernetes
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
    resource = setting.cluster.device.generation.kubernetes
    for pool in setting.pools:
        name = _pool_name(setting, pool)
        nodes, count = replica_nodes(question, pool)
        script = f"bash {file_of(setting, pool)}"
        if nodes > 1:
            script = f"NODE_RANK=$LWS_WORKER_INDEX MASTER_ADDR=$LWS_LEADER_ADDRESS {script}"
        spec = _pod(target, script, {"MODEL": "MODEL", "PORT": "8000"}, count, resource)
        labels = {"app": name}
        described = {"labels": labels}
        if pool.pool.role == "prefill" and target == "sglang":
            described["annotations"] = {"sglang.ai/bootstrap-port": str(8000 + BOOTSTRAP_OFFSET)}
        template = {"metadata": described, "spec": spec}
        if nodes > 1:
            # Requests reach the leader of a replica only.
            workers = {"metadata": {"labels": {"app": f"{name}-worker"}}, "spec": spec}
            group = {"size": nodes, "leaderTemplate": template, "workerTemplate": workers}
            contents = {"replicas": pool.pool.replicas, "leaderWorkerTemplate": group}
            objects.append(_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, contents))
        else:
            contents = {
                "replicas": pool.pool.replicas,
                "selector": {"matchLabels": labels},
                "template": template,
            }
            objects.append(_object("apps/v1", "Deployment", name, contents))
        objects.append(_service(name, 8000))
    if needs_router(setting) and target in PROGRAMS:
        objects += _router(setting, target)
    return objects


def _pool_name(setting: ServingSetting, pool: PoolSetting) -> str:
    return NAME if len(setting.pools) == 1 else f"{NAME}-{label_of(setting, pool)}"


def _router(setting: ServingSetting, target: str) -> list[dict[str, Any]]:
    """A router that finds the pods of the pools by their labels, and its right to list pods."""
    program, name = PROGRAMS[target], f"{NAME}-router"
    words = flags(router_options(setting, target)[0])
    words += ["--host 0.0.0.0", "--port 8000", "--service-discovery", "--service-discovery-port 8000"]
    words += ['--service-discovery-namespace "$NAMESPACE"']
    selectors = {"mixed": "--selector", "prefill": "--prefill-selector", "decode": "--decode-selector"}
    for role, option in selectors.items():
        pools = [pool for pool in setting.pools if pool.pool.role == role]
        if pools:
            words.append(" ".join([option, *(f"app={_pool_name(setting, pool)}" for pool in pools)]))
    script = f"pip install {program.package} && exec {program.command} {' '.join(words)}"
    namespace = {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    container = {"name": "main", "image": ROUTER_IMAGE, "command": ["bash", "-c", script], "env": [namespace]}
    labels = {"app": name}
    pod = {"serviceAccountName": name, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    meta = {"metadata": {"name": name}}
    group = "rbac.authorization.k8s.io"
    bound = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", **meta},
        {"apiVersion": f"{group}/v1", "kind": "Role", **meta, "rules": rules},
        {"apiVersion": f"{group}/v1", "kind": "RoleBinding", **meta, **bound},
        _object("apps/v1", "Deployment", name, deployment),
        _service(name, 8000),
    ]


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
