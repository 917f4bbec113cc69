"""Assumptions of a ranking: framework, overlaps, calibrations, prices, and the nearest published run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from rich.table import Table

from core.errors import MeshwrightError
from hwmodels.cluster import Cluster
from hwmodels.device import Device, devices
from meshwright.reports.plans import counts_differ
from meshwright.reports.tables import facts
from meshwright.reports.units import kernels_words, percent
from meshwright.validation.cases import TrainingCase, read_case
from meshwright.validation.rows import PublishedRow, SkippedRow, published_files, read_rows, rule_of
from planner.training.metrics import utilisation
from planner.training.search import SearchResult
from simulator.frameworks import adapter_rule, default_framework, default_name
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict


@dataclass(frozen=True)
class PublishedRun:
    """A measured run on the device in question."""

    case: TrainingCase
    mfu: float


def basis(result: SearchResult) -> Table:
    """The assumptions of the first plan."""
    return facts(basis_words(result), "What this rests on")


def basis_words(result: SearchResult) -> dict[str, str]:
    """The assumptions of the first plan, in words."""
    setting, plan = result.setting, result.plans.plan(0)
    device, calibration = setting.cluster.device, setting.kernels.calibration
    devices_used = setting.cluster.devices
    words = {
        "framework": _framework(setting),
        **({"overlaps": _overlaps(setting, plan, float(result.step.time[0]))} if devices_used > 1 else {}),
        "kernels": kernels_words(calibration.name, calibration.status, device.borrows),
        **({"network": _network(setting.cluster)} if devices_used > setting.cluster.domain else {}),
        "price": f"{device.price_per_hour_usd:g} $ an hour and device: {_price_source(device)}",
        **({"assumed": "; ".join(setting.cluster.assumed)} if setting.cluster.assumed else {}),
        **({"site": f"learned from {setting.site.source}"} if setting.site else {}),
        "headroom": f"{percent(result.space.headroom, 0)} of the device's memory",
        "nearest published run": _published(setting),
    }
    if setting.model.left_out:
        words["left out"] = setting.model.left_out
    if not setting.model.decoder_only and setting.model.causal:
        words["tokens"] = "of the decoder, in tok/s/GPU and $/Mtok; the encoder's are not counted"
    if counts_differ(result.metrics):
        words["MFU"] = "counts all keys of a sequence; causal MFU those that a token may see"
    if setting.training.adapter is not None:
        words["MFU, adapters"] = "counts no weight gradients of frozen products, which are not computed"
    return words


def _network(cluster: Cluster) -> str:
    """The fabric between nodes, and the error of its published measurements."""
    error = cluster.network_error
    tested = "no published measurement to check on" if error is None else f"{percent(error, 0)} median error"
    return f"{cluster.network.fabric}: {tested}"


def _framework(setting: Setting) -> str:
    """The framework, and the reason if it is the device's default."""
    name, rule = setting.framework.name, default_framework(setting.cluster.device)
    adapter = setting.training.adapter
    if adapter is not None and name == default_name(setting.cluster.device, adapter, setting.cluster.devices):
        return f"{name}, the default of adapters: {adapter_rule().why}"
    if name != rule.framework:
        return name
    return f"{name}, the default of {', '.join(rule.generations)}: {rule.why}"


def _price_source(device: Device) -> str:
    """Source of the price; prices other than the catalogue's are the user's."""
    shipped = device.name in devices.names() and devices.get(device.name)
    if shipped and shipped.price_per_hour_usd != device.price_per_hour_usd:
        return "as given"
    return device.sources.get("price_per_hour_usd", "as given")


def _overlaps(setting: Setting, plan: Plan, step_s: float) -> str:
    """Communication that the plan overlaps, and the step without the overlap of tensor parallelism."""
    on = [
        name.removeprefix("overlap_")
        for name in ("overlap_gradients", "overlap_parameters", "overlap_expert", "overlap_pipeline")
        if getattr(plan, name)
    ]
    words = ", ".join(on) or "none"
    if plan.tensor > 1:
        words += f"; tensor: {plan.overlap_tensor}"
        if plan.overlap_tensor != "none":
            bare = plan.model_copy(update={"overlap_tensor": "none"})
            slower = float(predict(setting, Plans.of(bare)).time[0]) / step_s - 1
            words += f" (without it the step takes {percent(slower)} longer)"
    return words


def _published(setting: Setting) -> str:
    """The nearest published run in words."""
    device, framework = setting.cluster.device.name, setting.framework.name
    rows = nearest_rows(setting)
    same = first_run(rows, framework)
    run = same or first_run(rows)
    if run is None:
        return f"none on {device}"
    case = run.case
    words = (
        f"{case.case_id}: {case.setting.model.name} on {case.setting.cluster.devices} {device}, "
        f"{case.setting.framework.name}, {case.precision}: MFU {percent(run.mfu)}"
    )
    return words if same else f"none with {framework} on {device}; {words}"


def nearest_rows(setting: Setting) -> list[PublishedRow]:
    """Rows of shipped runs on the device, the nearest model in kind and size first."""
    model, device = setting.model, setting.cluster.device.name
    candidates = []
    for file in published_files():
        for values in read_rows(file):
            if values.get("gpu") == device and values.get("derived_step_time_s"):
                size = log(float(values["n_layers"]) * float(values["d_model"]) ** 2)
                distance = abs(size - log(model.layers * model.hidden**2))
                other_kind = bool(values.get("n_experts")) != (model.moe is not None)
                candidates.append((other_kind, distance, values["case_id"], values, str(file)))
    return [PublishedRow(*row[3:]) for row in sorted(candidates, key=lambda row: row[:3])]


def first_run(rows: Sequence[PublishedRow], framework: str | None = None) -> PublishedRun | None:
    """The first of some rows that can be read; of one framework if named."""
    for row in rows:
        try:
            if framework is not None and rule_of(row)["release"] != framework:
                continue
            case = read_case(row.values, row.where)
        except (SkippedRow, MeshwrightError):
            continue
        if case.measured_step_s:
            return PublishedRun(case, utilisation(case.setting, case.measured_step_s))
    return None
