"""Fit kernels to one half of AIConfigurator's tables, and write them into the calibrations, by library.

    python -m benchmarks.fit_tables PACKAGE [--gpus gb300 ...] [--families decode ...] [--libraries vllm ...]

PACKAGE is that of `benchmarks.kernel_tables`. Only the half of the shapes that the hash opens to fits is
read; the errors in the files are of the other half. Constants go to the calibration's ``libraries``, with
``--root`` to the device's own.
"""

from __future__ import annotations

import fcntl
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from core.loading import read_mapping
from evidence.command import command
from evidence.fits.latent_attention import LATENT, LATENT_PREFILL
from evidence.fits.linear_scans import SCANS, STATE_STEPS
from evidence.fits.system_tables import OPERATIONS, SystemTable, system_tables
from evidence.fits.system_tables import SCANS as SCAN_FAMILIES
from hwmodels.device import Device, devices
from hwmodels.kernels.calibration import FOLDER, Calibration, calibrations
from hwmodels.kernels.chip import Chip, chip
from hwmodels.kernels.residual import ResidualGrid, load_grids, save_grids
from profiles.fitting.calibration_entry import GOOD_FORM, FittedEntry, fit_half
from profiles.fitting.operations import FORWARD, RICH, SIMPLE, FittedOperation
from profiles.fitting.operations.experts import ENGINE_EXPERTS
from profiles.fitting.operations.gemm import (
    LOW_PRECISION,
    QuantisingRoofline,
    QuantisingTileWave,
    at_throttling,
    settled_throttling,
    split_off_cast,
    with_cast,
)
from profiles.fitting.write import write_mapping

Mapped = dict[str, Any]

RULED: dict[str, FittedOperation[Any]] = {"scan": SCANS, "state_step": STATE_STEPS}
FITTED: dict[str, FittedOperation[Any]] = {
    **{family: RULED[family.partition("/")[0]] for family in SCAN_FAMILIES},
    **OPERATIONS,
    "experts": ENGINE_EXPERTS,
    "latent_decode": LATENT,
    "latent_prefill": LATENT_PREFILL,
}
WIDE, NARROW = ("bf16", "bf16_kvfp8"), ("fp8", "fp8_block", "int8", "nvfp4")
FORMATS = (*WIDE, *NARROW, "mxfp4_w4a8", "mxfp4_w4a16", "int4_w4a16")
UNTUNED = {("l40s", "sglang", "bf16"), ("rtx-pro-6000-server", "sglang", "bf16")}
"""Tables of Triton's experts with its default tiles: their times jump where tokens outnumber experts."""
NO_GRID, ALWAYS = (math.inf, math.inf), (0.0, 0.0)
APPEND = {"append_efficiency": 0.6, "append_extra": 200.0}


@contextmanager
def written_alone(path: Path) -> Iterator[None]:
    """Keep other runs of this command from the file."""
    with Path(tempfile.gettempdir(), f"{path.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write(table: SystemTable, root: bool, path: Path, entry: FittedEntry, forms: Mapped) -> str:
    """Write an entry and its grid into a calibration's file, and return the grid's name."""
    operation = FITTED[table.family].name
    name = table.family.partition("/")[2] or table.dtype
    content = dict(read_mapping(path))
    place = content if root else content.setdefault("libraries", {}).setdefault(table.library, {})
    place = place.setdefault(operation, {})
    if FITTED[table.family] is STATE_STEPS:
        # A rule's decode step shares the entry of its scan.
        if name in place:
            steps = {key: value for key, value in forms["form"].items() if key.startswith("decode_")}
            place[name]["form"] = place[name]["form"] | steps
    else:
        place[name] = {
            "status": "fitted-elsewhere",
            "source": f"{int(table.fitted.sum())} points of aic:{table.source}; error on the other half",
            "error": entry.error.model_dump(exclude_none=True),
            **forms,
        }
        if entry.error_with_points:
            place[name]["error_with_points"] = entry.error_with_points.model_dump(exclude_none=True)
    key = f"{operation}/{name}" if root else f"{table.library}/{operation}/{name}"
    grids = path.with_name(f"{path.stem}.residuals.npz")
    all_grids: dict[str, ResidualGrid] = dict(load_grids(grids)) if grids.exists() else {}
    changed = all_grids.pop(key, None) is not None or entry.grid is not None
    if entry.grid is not None:
        all_grids[key] = entry.grid
    if changed:
        save_grids(grids, all_grids)
        content["residuals"] = grids.name
    write_mapping(content, path)
    return key


def fitted(table: SystemTable, device: Device, always: bool) -> tuple[FittedEntry, Mapped]:
    """Fit one table: the entry, and its forms as the calibration holds them."""
    operation = FITTED[table.family]
    figures = chip(device, table.dtype.partition("_kv")[0])
    seen, apart = table.points.where(table.fitted), table.points.where(~table.fitted)
    if operation in (LATENT, LATENT_PREFILL, SCANS, STATE_STEPS):
        entry = fit_half(operation, figures, seen, apart, operation.generic, good=NO_GRID)
        return entry, {"form": entry.form.model_dump(exclude_none=True)}
    present = calibrations.get(str(device.calibration))
    prior = _prior(present, table.library, operation.name, table.dtype)
    if table.family == "gemm":
        return _fitted_gemm(table, figures, prior, always)
    form = prior.form
    if operation is ENGINE_EXPERTS:
        untuned = (table.gpu, table.library, table.dtype) in UNTUNED
        operation = replace(operation, variants=({**operation.variants[0], "untuned": untuned},))
        entry = fit_half(operation, figures, seen, apart, form, good=NO_GRID)
        return entry, {"form": entry.form.model_dump(exclude_none=True)}
    if operation is FORWARD and form.append_efficiency is None:
        form = form.model_copy(update=APPEND)
    libraries = present.libraries.get(table.library)
    calibrated = libraries is not None and table.dtype in getattr(libraries, operation.name)
    operation = replace(operation, starts=({},), variants=({},) if calibrated else operation.variants)
    entry = fit_half(operation, figures, seen, apart, form, good=ALWAYS if always else GOOD_FORM)
    return entry, {"form": entry.form.model_dump(exclude_none=True)}


def _fitted_gemm(table: SystemTable, figures: Chip, prior: Any, always: bool) -> tuple[FittedEntry, Mapped]:
    seen, apart = table.points.where(table.fitted), table.points.where(~table.fitted)
    simple_fit, rich_fit = SIMPLE, replace(RICH, starts=RICH.starts[:1])
    simple, rich = prior.simple, prior.rich or RICH.generic
    if table.dtype in LOW_PRECISION:
        simple_fit, rich_fit = with_cast(simple_fit), with_cast(rich_fit)
        cast = (
            {}
            if prior.quantisation is None
            else {
                "quantisation_s": prior.quantisation.overhead_s,
                "quantisation_efficiency": prior.quantisation.memory_efficiency,
            }
        )
        simple = QuantisingRoofline(**simple.model_dump(), **cast)
        rich = QuantisingTileWave(**rich.model_dump(), **cast)
    rich_fit, rich = at_throttling(rich_fit, rich, settled_throttling(seen, figures, rich.throttling))
    roofline = fit_half(simple_fit, figures, seen, apart, simple, good=NO_GRID)
    entry = fit_half(rich_fit, figures, seen, apart, rich, good=ALWAYS if always else GOOD_FORM)
    without_cast, quantisation = split_off_cast(entry.form)
    forms = {"simple": split_off_cast(roofline.form)[0].model_dump(), "rich": without_cast.model_dump()}
    return entry, forms | ({"quantisation": quantisation.model_dump()} if quantisation else {})


def _prior(present: Calibration, library: str, operation: str, dtype: str) -> Any:
    """Constants to start from: the library's, another engine's, the device's own, of the nearest format."""
    names = (dtype, dtype.partition("_kv")[0], "fp8_block", "fp8", "bf16")
    engines = (library, *(name for name in ("trtllm", "vllm", "sglang") if name != library))
    holders: list[Any] = [present.libraries[name] for name in engines if name in present.libraries]
    for name in names:
        for holder in (*holders[:1], present, *holders[1:]) if operation == "gemm" else (*holders, present):
            forms: Mapping[str, Any] = getattr(holder, operation)
            if name in forms:
                return forms[name]
    raise ValueError(f"no {operation} to start from in {present.name}")


@command
def main(
    package: Path,
    *,
    out: Annotated[Path, "-o"] = FOLDER,
    gpus: Sequence[str] = (),
    families: Annotated[Sequence[str], tuple(FITTED)] = (),
    libraries: Sequence[str] = (),
    dtypes: Annotated[Sequence[str], FORMATS] = FORMATS,
    root: Annotated[bool, "write the device's own constants"] = False,
    grids: Annotated[str, ("needed", "always"), "beside which forms"] = "needed",
) -> None:
    """Fit and write every table chosen."""
    tables = system_tables(package, tuple(families or FITTED), tuple(gpus), tuple(libraries))
    for table in tables:
        # A table of few shapes may lie on one side of the hash.
        if table.dtype not in dtypes or table.fitted.all() or not table.fitted.any():
            continue
        began = time.perf_counter()
        device = devices.get(table.gpu)
        entry, forms = fitted(table, device, grids == "always")
        path = out / f"{device.calibration}.yaml"
        with written_alone(path):
            key = write(table, root, path, entry, forms)
        error, points = entry.error, entry.error_with_points
        text = f"{table.gpu:20} {key:36} form {error.median:6.1%} / {error.p90:6.1%}"
        text += f"  with points {points.median:6.1%} / {points.p90:6.1%}" if points else ""
        print(f"{text}  {time.perf_counter() - began:.0f} s", flush=True)
