"""A setting and its plan as a scenario file: the inverse of ``simulator.scenario``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from core.loading import Catalogue, looks_like_path
from hwmodels.cluster import Cluster, clusters, usual_cluster
from hwmodels.device import Device, devices
from hwmodels.usual_clusters import USUAL
from simulator.frameworks import frameworks
from simulator.models import Model, models
from simulator.plan import Plan
from simulator.setting import Setting


def scenario_of(setting: Setting, plan: Plan, title: str = "") -> dict[str, Any]:
    """A plan as the mapping of a scenario that ``make_scenario`` reads, with the same prediction.

    Catalogue entries are written by name, all other definitions in full. The plan states all of its fields.

    Args:
        setting: the plan's model, cluster, workload and framework.
        plan: the plan to write.
        title: of the scenario; by default model, devices and degrees.
    """
    cluster = setting.cluster.paced(1.0, 1.0)
    named = f"{setting.model.name} on {cluster.devices} {cluster.device.name}: {plan.describe()}"
    written = {
        "title": title or named,
        "model": reference(models, setting.model),
        "cluster": cluster_reference(cluster),
        "gpus": cluster.devices,
        "workload": setting.training.model_dump(mode="json", exclude_none=True),
        "framework": _framework_reference(setting),
        "plan": plan.model_dump(mode="json"),
    }
    if setting.site is not None:
        written["site"] = setting.site.model_dump(mode="json", exclude_none=True)
    if setting.allow:
        written["allow"] = list(setting.allow)
    if setting.stragglers:
        written["stragglers"] = [straggler.model_dump(mode="json") for straggler in setting.stragglers]
    return written


def _framework_reference(setting: Setting) -> str | dict[str, Any]:
    """The framework's name where the format of training alone sets it up, or its definition."""
    used, name = setting.framework, setting.framework.name
    if name in frameworks.names() and frameworks.get(name).under(setting.training.precision) == used:
        return name
    return reference(frameworks, used)


def reference(catalogue: Catalogue[Any], entry: BaseModel) -> str | dict[str, Any]:
    """The name of a catalogue entry, or the full definition."""
    for name in names_of(entry):
        if catalogue.resolve(name):
            shipped = catalogue.get(name)
            if isinstance(entry, Model):  # What an answer leaves out depends on its question.
                shipped = shipped.model_copy(update={"left_out": entry.left_out})
            if entry in (shipped, getattr(shipped, "stacked", shipped)):
                return name
    return entry.model_dump(mode="json", exclude_none=True)


def names_of(entry: BaseModel) -> list[str]:
    """Names by which a catalogue may know an entry: a model that sees has that of its tower too."""
    tower = getattr(entry, "tower", None)
    return [getattr(entry, "name", ""), *([] if tower is None else [tower.name])]


def cluster_reference(cluster: Cluster) -> str | dict[str, Any]:
    """The cluster's name, its device's where it is the usual one, or its definition; without the size."""
    shipped = {cluster.name: clusters.get(cluster.name)} if cluster.name in clusters.names() else {}
    if cluster.device.name in USUAL:
        shipped[cluster.device.name] = usual_cluster(cluster.device.name)
    for name, cluster_of_name in shipped.items():
        if cluster_of_name.devices >= cluster.devices and cluster_of_name.resized(cluster.devices) == cluster:
            return name
    written = cluster.model_dump(mode="json", exclude_none=True)
    return {**written, "device": _device(cluster.device)}


def _device(device: Device) -> str | dict[str, Any]:
    """A device by name, or with the absolute path of its calibration."""
    written = reference(devices, device)
    if isinstance(written, str):
        return written
    calibration = written["calibration"]
    if isinstance(calibration, str) and looks_like_path(calibration):
        written["calibration"] = str(Path(calibration).resolve())
    return written
