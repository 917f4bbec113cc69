"""A scenario to start from, for a question about a cluster of groups, which the search does not know."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from pathlib import Path
from typing import Any

from core.errors import InputError
from hwmodels.mixed import MixedCluster, mixed_cluster
from simulator.models import Model, models
from simulator.scenario import find, make_mixed


def refuse_groups(data: Mapping[str, Any], where: str, folder: Path) -> None:
    """Refuse a cluster of groups, with a scenario of it that ``simulate`` takes.

    Raises:
        InputError: always.
    """
    cluster = mixed_cluster(data.get("cluster"), f"{where}: cluster", folder)
    if cluster is None:
        raise InputError("a cluster of groups is needed", f"{where}: cluster")
    told = "has groups of nodes, which the search does not range over"
    ready = ready_scenario(data, cluster, find(models, data["model"], folder, f"{where}: model"))
    try:
        make_mixed(ready, where, folder)
    except InputError:
        advice = "`meshwright simulate` takes it with plan and placement (docs/clusters.md)"
        raise InputError(f"{told}; {advice}", f"{where}: cluster") from None
    import yaml

    text = yaml.safe_dump(ready, sort_keys=False, default_flow_style=None, width=100)
    advice = "`meshwright simulate FILE.yaml` times a plan of it; to start from:"
    raise InputError(f"{told}; {advice}\n\n{text}", f"{where}: cluster")


def ready_scenario(data: Mapping[str, Any], cluster: MixedCluster, model: Model) -> dict[str, Any]:
    """The question with a plan over all groups: tensor parallel in a node, groups as parts of one pipeline,
    layers in proportion to the peak rates of the groups' devices.

    The largest common divisor of the groups' nodes gives the replicas.
    """
    workload = data.get("workload")
    precision = workload.get("precision", "bf16") if isinstance(workload, Mapping) else "bf16"
    replicas = gcd(*(group.nodes for group in cluster.groups))
    stages = {group.name: group.nodes // replicas for group in cluster.groups}
    width = gcd(*(group.cluster.devices_per_node for group in cluster.groups), model.heads)
    rates = {group.name: group.cluster.device.peak(precision) for group in cluster.groups}
    total = sum(rates[name] * count for name, count in stages.items())
    layers = {name: max(1, round(model.layers * rates[name] / total)) for name in stages}
    # What rounding leaves goes to the stages of one group, if they share it evenly.
    for name, count in stages.items():
        left = model.layers - sum(layers[other] * stages[other] for other in stages)
        if left % count == 0 and layers[name] + left // count > 0:
            layers[name] += left // count
            break
    plan = {"tensor": width, "sequence_parallel": width > 1, "pipeline": sum(stages.values())}
    placement = {"stages": stages, "layers": layers} if len(stages) > 1 else {"stages": stages}
    kept = {key: value for key, value in data.items() if key not in ("plan", "placement", "search")}
    return {**kept, "gpus": cluster.devices, "plan": {**plan, "zero": 1}, "placement": placement}
