"""Calibrations from measured points: every operation, dtype and library of the points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError
from core.loading import Strict
from hwmodels.device import Device
from hwmodels.kernels.calibration import Calibration, ErrorOnUnseen
from hwmodels.kernels.chip import Chip, chip
from hwmodels.kernels.memory_bound import VARIANTS
from hwmodels.kernels.residual import ResidualGrid
from profiles.fitting.calibration_entry import FittedEntry, Unseen, better, fit_entry
from profiles.fitting.operations import (
    BACKWARD,
    DECODE,
    EXPERTS,
    FORWARD,
    MEMORY_BOUND,
    RICH,
    SIMPLE,
    FittedOperation,
)
from profiles.fitting.operations.gemm import (
    LOW_PRECISION,
    QuantisingRoofline,
    QuantisingTileWave,
    at_throttling,
    settled_throttling,
    split_off_cast,
    with_cast,
)
from profiles.fitting.operations.memory_bound import kind_of
from profiles.fitting.select import groups, library_of, read_points
from profiles.points import Points

Say = Callable[[str], None]
Mapped = dict[str, Any]

CAST = "kv"
"""Between the dtype of the arithmetic and that of the cache, in a dtype like "bf16_kvfp8"."""


@dataclass
class Fit:
    """Result of a calibration run.

    Attributes:
        calibration: mapping of the calibration file.
        grids: residual grids by the name that the kernel model looks up.
        errors: rows for the report, one per entry.
        unseen: held-out points of each row, for the picture.
        dropped: impossible points that were left out.
        missing: operations with too few points, one line per operation.
    """

    calibration: Mapped
    grids: dict[str, ResidualGrid] = field(default_factory=dict)
    errors: list[Mapped] = field(default_factory=list)
    unseen: dict[str, Unseen] = field(default_factory=dict)
    dropped: int = 0
    missing: list[str] = field(default_factory=list)


def calibrate(
    paths: list[Path],
    device: Device,
    *,
    gpu: str = "",
    share: float = 0.15,
    status: str = "measured",
    defaults: Mapping[str, str] | None = None,
    base: Calibration | None = None,
    say: Say | None = None,
) -> Fit:
    """Fit a device's kernel forms to measured points.

    Operations without points keep the constants, the status and the source of the device's present
    calibration.

    Args:
        paths: point files, or folders of them.
        device: whose peaks and bandwidth the forms are relative to.
        gpu: name of the device in the points' ``gpu`` column; empty: the device's name, or the only name of
            the points.
        share: share of the shapes held out of a first fit to state its error.
        status: "measured" on this machine, or "fitted-elsewhere".
        defaults: library whose kernels are the default, by table; else the one with most points.
        base: priors, and constants of operations without points; by default the device's present ones.
        say: called with one line for each entry that is finished.

    Raises:
        InputError: no points of this device, or too few of every operation.
    """
    tables, dropped = read_points(paths)
    base = base or device.kernels.calibration
    fit = Fit(base.model_dump(exclude_none=True, exclude={"based_on", "residuals"}), dropped=dropped)
    fit.calibration |= {"name": device.name, "multiprocessors": device.multiprocessors, "status": status}
    runner = _Runner(fit, device, base, share, status, dict(defaults or {}), say or (lambda line: None))
    devices: set[str] = set()
    for table, parts in tables.items():
        if table == "collectives":
            continue
        for points in parts:
            names = np.unique(points["gpu"].astype(str)).tolist()
            devices.update(names)
            gpu_name = gpu or (device.name if device.name in names or len(names) != 1 else names[0])
            points_of_gpu = points.where(points["gpu"].astype(str) == gpu_name)
            if gpu_name not in (gpu, device.name):
                runner.say(f"{table}: the points are of {gpu_name!r}; they are taken as {device.name}")
            if len(points_of_gpu):
                runner.table(table, points_of_gpu)
    if not fit.errors:
        few = "; ".join(fit.missing) or f"the points are of {', '.join(sorted(devices)) or 'no device'}"
        raise InputError(f"nothing to fit for {gpu or device.name}: {few}")
    return fit


@dataclass
class _Runner:
    fit: Fit
    device: Device
    base: Calibration
    share: float
    status: str
    defaults: dict[str, str]
    say: Say

    def table(self, table: str, points: Points) -> None:
        """Fit every group of one table's points."""
        parts = list(groups(points))
        sizes: dict[str, int] = {}
        for _, library, part in parts:
            sizes[library] = sizes.get(library, 0) + len(part)
        default = self.defaults.get(table) or max(sizes, key=lambda name: sizes[name])
        if table == "elementwise":
            libraries = library_of(points)
            for library in sizes:
                part = points.where(libraries == library)
                self._elementwise(part, "" if library == default else library)
            return
        # The default library first: its constants are the priors of the others.
        for dtype, library, part in sorted(parts, key=lambda item: (item[1] != default, item[1], item[0])):
            where = "" if library == default else library
            try:
                figures = chip(self.device, dtype.split(f"_{CAST}")[0])
            except InputError as error:
                self.fit.missing.append(str(error))
                continue
            if table == "gemm":
                self._gemm(dtype, where, part, figures)
            else:
                self._forms(table, dtype, where, part, figures)

    def _forms(self, table: str, dtype: str, library: str, points: Points, figures: Chip) -> None:
        choices = {"attention_decode": (DECODE,), "moe": (EXPERTS,), "attention_prefill": (FORWARD, BACKWARD)}
        for operation in choices[table]:
            part = points
            if "direction" in points.columns:
                direction = "backward" if operation is BACKWARD else "forward"
                part = points.where(points["direction"].astype(str) == direction)
            if not self._enough(operation, part, dtype, library):
                continue
            prior = self._prior(operation, dtype)
            if operation is FORWARD and getattr(prior, "append_efficiency", 1.0) is None and _serving(part):
                prior = prior.model_copy(update={"append_efficiency": 0.6, "append_extra": 200.0})
            entry = fit_entry(operation, figures, part, prior, self.share, self._keeps(part))
            self._store(operation.name, dtype, library, part, entry, {"form": entry.form})

    def _gemm(self, dtype: str, library: str, points: Points, figures: Chip) -> None:
        forward = points.where(points["layout"].astype(str) == "forward")
        if not self._enough(SIMPLE, forward, dtype, library):
            return
        simple_prior, rich_prior = self._prior(SIMPLE, dtype), self._prior(RICH, dtype)
        simple_fit, rich_fit = SIMPLE, RICH
        if dtype in LOW_PRECISION and _serving(forward):
            simple_fit, rich_fit = with_cast(SIMPLE), with_cast(RICH)
            simple_prior = QuantisingRoofline(**simple_prior.model_dump())
            rich_prior = QuantisingTileWave(**rich_prior.model_dump())
        simple = fit_entry(simple_fit, figures, forward, simple_prior, self.share, False)
        best, forms = simple, {"simple": split_off_cast(simple.form)[0]}
        if len(forward) >= RICH.least:
            throttling = settled_throttling(forward, figures, rich_prior.throttling)
            rich_fit, rich_prior = at_throttling(rich_fit, rich_prior, throttling)
            rich = fit_entry(rich_fit, figures, forward, rich_prior, self.share, self._keeps(forward))
            if better(rich, simple):
                product, cast = split_off_cast(rich.form)
                best = rich
                forms |= {"rich": product} | ({"quantisation": cast} if cast else {})
        self._store("gemm", dtype, library, forward, best, forms)
        if not library:
            self._layouts(points, figures, best.form)

    def _layouts(self, points: Points, figures: Chip, form: Any) -> None:
        operation: FittedOperation[Any] = RICH if hasattr(form, "fixed_depth") else SIMPLE
        ratios = {}
        for layout in ("dgrad", "wgrad"):
            part = points.where(points["layout"].astype(str) == layout)
            if len(part) >= 3:
                predicted = operation.seconds(form, figures, part)
                ratios[layout] = float(f"{np.median(part['time_us'] * 1e-6 / predicted):.4g}")
        if ratios:
            source = f"median over {self._source(points)}"
            self.fit.calibration["layouts"] |= ratios | {"status": self.status, "source": source}

    def _elementwise(self, points: Points, library: str) -> None:
        kinds = kind_of(points)
        figures = Chip(
            0.0, self.device.memory_bandwidth, self.device.multiprocessors, self.device.l2_bytes, 2.0, 2.0
        )
        parts = {str(kind): points.where(kinds == kind) for kind in np.unique(kinds[kinds != ""])}
        for name, kind in VARIANTS.items():
            rows = points["op"].astype(str) == name
            if rows.any() and not np.array_equal(rows, kinds == kind):
                parts[name] = points.where(rows)
        for name, part in parts.items():
            if self._enough(MEMORY_BOUND, part, name, library):
                table = self.base.memory_bound
                present = table.get(name) or table.get(VARIANTS.get(name, "")) or table["elementwise"]
                entry = fit_entry(MEMORY_BOUND, figures, part, present.form, self.share, False)
                self._store("memory_bound", name, library, part, entry, {"form": entry.form})
        if not library:
            self._launch_and_links(points)

    def _launch_and_links(self, points: Points) -> None:
        operations = points["op"].astype(str)
        seconds = points["time_us"] * 1e-6
        names = [name for name in ("launch_eager_training", "launch_eager") if name in operations]
        if names:
            eager = operations == names[0]
            each = seconds[eager] / np.maximum(points["tokens"][eager], 1)
            self.fit.calibration["launch_s"] = float(f"{np.median(each):.3g}")
        links = np.char.endswith(operations, "_host") | np.char.endswith(operations, "_device")
        links &= np.char.startswith(operations, "copy_") & (points["bytes_per_token"] > 0)
        if links.any():
            rate = points["bytes_per_token"][links] / seconds[links]
            large = points["bytes_per_token"][links] == points["bytes_per_token"][links].max()
            self.fit.calibration["host_copy"] |= {
                "status": self.status,
                "source": self._source(points.where(links)),
                "bandwidth": float(f"{np.median(rate[large]):.4g}"),
            }

    def _prior(self, operation: FittedOperation[Any], dtype: str) -> Any:
        """Initial constants: of this run's default library, else the device's, else generic."""
        field_ = "simple" if operation is SIMPLE else "rich" if operation is RICH else "form"
        for name in (dtype, "bf16", "fp16"):
            table = self.fit.calibration.get(operation.name, {})
            form = table.get(name, {}).get(field_)
            if form is not None:
                return type(operation.generic)(**_numbers_only(form, operation))
        return operation.generic

    def _keeps(self, points: Points) -> bool:
        return len(points) >= 24

    def _enough(self, operation: FittedOperation[Any], points: Points, dtype: str, library: str) -> bool:
        if len(points) >= operation.least:
            return True
        if len(points):
            name = f"{operation.name} in {dtype}" + (f" of {library}" if library else "")
            self.fit.missing.append(f"{name}: {len(points)} points, {operation.least} are needed")
        return False

    def _source(self, points: Points) -> str:
        names = sorted({str(source) for source in np.unique(points["source"].astype(str))} - {""})
        return f"{len(points)} points" + (f" of {', '.join(names)}" if names else "")

    def _store(
        self,
        operation: str,
        dtype: str,
        library: str,
        points: Points,
        entry: FittedEntry,
        forms: Mapping[str, Strict],
    ) -> None:
        mapped: Mapped = {
            "status": self.status,
            "source": self._source(points),
            "error": _mapped(entry.error),
        }
        if entry.error_with_points:
            mapped["error_with_points"] = _mapped(entry.error_with_points)
        mapped |= {name: form.model_dump(exclude_none=True) for name, form in forms.items()}
        holder = self.fit.calibration
        if library:
            holder = holder.setdefault("libraries", {}).setdefault(library, {})
        holder.setdefault(operation, {})[dtype] = mapped
        name = f"{library}/{operation}/{dtype}" if library else f"{operation}/{dtype}"
        if entry.grid is not None:
            self.fit.grids[name] = entry.grid
        self.fit.unseen[name] = entry.unseen
        row = {"operation": operation, "dtype": dtype, "library": library, "points": len(points)}
        row |= {"error": mapped["error"], "error_with_points": mapped.get("error_with_points")}
        self.fit.errors.append(row)
        band = entry.error_with_points or entry.error
        spread = f"{band.median:.1%} median, {band.p90:.1%} 90th percentile"
        self.say(f"{name}: {len(points)} points, {spread if band.shapes else 'too few to keep one out'}")


def _serving(points: Points) -> bool:
    """Whether points come from serving collectors, whose calls cast and append inside."""
    kernels = points["kernel"].astype(str) if "kernel" in points.columns else np.array([""])
    return bool((kernels == "").all())


def _numbers_only(form: Mapping[str, Any], operation: FittedOperation[Any]) -> Mapped:
    return {name: value for name, value in form.items() if name in type(operation.generic).model_fields}


def _mapped(error: ErrorOnUnseen) -> Mapped:
    return error.model_dump(exclude_none=True)
