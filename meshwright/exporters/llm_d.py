"""llm-d: values of the Helm chart llm-d-modelservice, with only the flags that differ from vLLM's defaults.

Keys as in the chart (llm-d-incubation/llm-d-modelservice: charts/llm-d-modelservice/values.yaml and
templates/_helpers.tpl): ``parallelism.tensor`` writes ``--tensor-parallel-size`` and the GPUs of a pod,
``modelCommand: vllmServe`` the model and the port. Without a prefill pool all requests go to ``decode``.
"""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from core.errors import InputError
from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, flags, header
from meshwright.exporters.serving import deployment_gaps, family_of, pool_options
from meshwright.exporters.table import Options, table
from simulator.serving.setting import PoolSetting, ServingSetting

ENGINE = "vllm-0.33.yaml"
IMAGE = "vllm/vllm-openai:v0.33.0"
FILE, MODEL = "values.yaml", "MODEL"
BY_CHART = ("--tensor-parallel-size",)
NOTES = (
    f"the checkpoint: replace {MODEL} by its name on Hugging Face; authSecretName if it is gated",
    "the gateway, CPU and memory of the pods, node selectors",
)


def write(question: ExportQuestion) -> Export:
    """The values and their gaps.

    Raises:
        InputError: a replica that spans nodes.
    """
    setting, launcher = question.deployed(), table(ENGINE)
    family = family_of(setting, setting.pools[0]) or "vllm"
    gaps = deployment_gaps(setting, "vllm", placed=True)
    if family == "vllm":
        router = setting.deployment.router
        gaps.append(
            f"deployment.router = {router}: llm-d's endpoint picker routes, by its default-config.yaml"
        )
    split = any(pool.pool.role == "prefill" for pool in setting.pools)
    values: dict[str, Any] = {
        "multinode": False,
        "modelArtifacts": {"name": MODEL, "uri": f"hf://{MODEL}"},
        "routing": {"servicePort": 8000, "proxy": {"enabled": split, "targetPort": 8200 if split else 8000}},
        "prefill": {"create": False},
    }
    for pool in setting.pools:
        _check_shape(setting, pool)
        options, more = pool_options(launcher, setting, pool)
        gaps += [gap for gap in more if gap not in gaps]
        values["prefill" if pool.pool.role == "prefill" else "decode"] = _section(pool, options)
    top = commented(header(question, f"llm-d-modelservice 0.4 with {launcher.version}", (*gaps,), NOTES))
    text = top + yaml.safe_dump(values, sort_keys=False, width=10_000)
    run = f"helm install meshwright llm-d-modelservice/llm-d-modelservice -f {FILE}"
    return Export({FILE: text}, tuple(gaps), NOTES, run)


def _check_shape(setting: ServingSetting, pool: PoolSetting) -> None:
    """Refuse replicas that span nodes, which the chart starts as a LeaderWorkerSet with commands of its own.

    Raises:
        InputError: more devices than a node has.
    """
    devices, per_node = pool.pool.devices, setting.cluster.devices_per_node
    if devices > per_node:
        raise InputError(
            f"llm-d values are written for replicas on one node; pool {pool.name} has {devices} devices, a "
            f"node {per_node}: k8s and dynamo write it",
            "--to",
        )


def _section(pool: PoolSetting, options: Options) -> dict[str, Any]:
    """A pool: replicas, GPUs, and flags that are not the chart's."""
    plain = pool.pool.devices == pool.pool.tensor
    pool_flags = {name: value for name, value in options.items() if not (plain and name in BY_CHART)}
    container = {
        "name": "vllm",
        "image": IMAGE,
        "modelCommand": "vllmServe",
        "args": shlex.split(" ".join(flags(pool_flags))),
        "mountModelVolume": True,
        "resources": {key: {"nvidia.com/gpu": str(pool.pool.devices)} for key in ("limits", "requests")},
    }
    degrees = {"parallelism": {"tensor": pool.pool.tensor, "data": 1}} if plain else {}
    return {"create": True, "replicas": pool.pool.replicas, **degrees, "containers": [container]}


EXPORTER = Exporter("llm-d", "Helm values of llm-d-modelservice", ("serving",), write)
