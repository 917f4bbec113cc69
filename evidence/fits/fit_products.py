"""Fit every shipped matrix product again, each entry to the points that its source names.

    python -m benchmarks.fit_products POINTS PACKAGE [--gpus h100-sxm ...]

POINTS is the folder of `benchmarks.fit_kernels`, PACKAGE that of `benchmarks.fit_tables`. A change of the
products' form needs it. Entries keep the constants that no fit moves, and the calibrations that copy a fitted
one or hold ratios to it follow. Prints the errors kept out before and after.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from core.loading import read_mapping
from evidence.command import command
from evidence.fits.fit_kernels import DEVICES, SERVED, fit_device
from evidence.fits.fit_tables import fitted
from evidence.fits.system_tables import system_tables
from hwmodels.device import devices
from hwmodels.kernels.calibration import FOLDER
from hwmodels.kernels.chip import chip
from hwmodels.kernels.grouped_gemm import GroupedTileWave
from hwmodels.kernels.residual import ResidualGrid, load_grids, save_grids
from profiles.fitting.holdout import errors
from profiles.fitting.operations.experts import ENGINE_EXPERTS
from profiles.fitting.write import write_mapping

Mapped = dict[str, Any]

TABLES = {"gemm": "gemm", "grouped_gemm": "moe"}
FAMILIES = {"gemm": "gemm", "grouped_gemm": "experts"}
POINTS = r"\d+ points of [\w.:-]+"
HALF = "; error on the other half"
SHARED = ", the same FlashInfer kernel"
"""Mark of SGLang's entries with vLLM's constants."""
GRIDS = ".residuals.npz"
FORMS = ("simple", "rich", "form", "quantisation")
OF_TABLE = "engine_kernels"
"""What a form says of the table that it is fitted to, which no fit moves."""


class Shipped(NamedTuple):
    """An entry of a calibration file; `library` is empty for the device's own."""

    library: str
    operation: str
    dtype: str
    entry: Mapped

    @property
    def name(self) -> str:
        """Name of the entry's grid of residuals."""
        return "/".join(part for part in (self.library, self.operation, self.dtype) if part)


def shipped(content: Mapped) -> Iterator[Shipped]:
    """Yield the products' entries of a calibration file."""
    for library, holder in (("", content), *content.get("libraries", {}).items()):
        for operation in FAMILIES:
            for dtype, entry in holder.get(operation, {}).items():
                yield Shipped(library, operation, dtype, entry)


def by_points(gpu: str, content: Mapped, grids: dict[str, ResidualGrid], points: Path) -> None:
    """Fit the entries whose source names points of `fit_kernels`."""
    began = time.perf_counter()
    of_points = [
        product for product in shipped(content) if re.fullmatch(POINTS, product.entry.get("source", ""))
    ]
    fit = fit_device(gpu, points, FOLDER, sorted({TABLES[product.operation] for product in of_points}))
    new = {product.name: product.entry for product in shipped(fit.calibration)}
    for product in of_points:
        # Entries of the default library may stand under its name too, without residuals.
        name = product.name if product.name in fit.unseen else f"{product.operation}/{product.dtype}"
        if new.get(name, {}).get("source") == product.entry["source"]:
            replace(gpu, product, new[name], fit.grids.get(product.name), grids)
    print(f"{gpu}: points fitted in {time.perf_counter() - began:.0f} s", flush=True)


def by_tables(gpu: str, content: Mapped, grids: dict[str, ResidualGrid], package: Path) -> None:
    """Fit the entries whose source names a table of the package."""
    of_table = {
        (product.operation, product.dtype, product.entry["source"].partition(" points of aic:")[2]): product
        for product in shipped(content)
        if product.entry.get("source", "").endswith(HALF) and SHARED not in product.entry["source"]
    }
    began = time.perf_counter()
    for table in system_tables(package, tuple(FAMILIES.values()), _names(gpu)):
        operation = next(name for name, family in FAMILIES.items() if family == table.family)
        product = of_table.get((operation, table.dtype, table.source + HALF))
        if product is None or product.library not in ("", table.library) or not table.fitted.any():
            continue
        always = "error_with_points" in product.entry
        entry, forms = fitted(table, devices.get(table.gpu), always)
        mapped: Mapped = {
            "source": f"{int(table.fitted.sum())} points of aic:{table.source}{HALF}",
            "error": entry.error.model_dump(exclude_none=True),
            **forms,
        }
        if entry.error_with_points:
            mapped["error_with_points"] = entry.error_with_points.model_dump(exclude_none=True)
        replace(gpu, product, mapped, entry.grid, grids)
    print(f"{gpu}: tables fitted in {time.perf_counter() - began:.0f} s", flush=True)


def replace(
    gpu: str, product: Shipped, new: Mapped, grid: ResidualGrid | None, grids: dict[str, ResidualGrid]
) -> None:
    """Give a shipped entry the constants, the errors and the grid of a new fit, and print the errors."""
    old = dict(product.entry)
    for key, value in new.items():
        product.entry[key] = _with_constants(old.get(key, {}), value) if key in FORMS else value
    if grid is not None:
        grids[product.name] = grid
    else:
        grids.pop(product.name, None)
        product.entry.pop("error_with_points", None)
    print(f"{gpu:13} {product.name:34} {_errors(old)}  ->  {_errors(product.entry)}", flush=True)


def _with_constants(old: Mapped, new: Mapped) -> Mapped:
    """A form with the constants of a new fit."""
    return old | new | ({OF_TABLE: old[OF_TABLE]} if OF_TABLE in old else {})


def _errors(entry: Mapped) -> str:
    form, points = entry["error"], entry.get("error_with_points")
    text = f"{form['median']:6.1%} / {form['p90']:6.1%}"
    return text + (f" with points {points['median']:6.1%} / {points['p90']:6.1%}" if points else " " * 28)


def share_kernels(gpu: str, content: Mapped, grids: dict[str, ResidualGrid], package: Path) -> None:
    """Give SGLang's experts vLLM's constants where both run one kernel; its own table states the error."""
    vllm = content.get("libraries", {}).get("vllm", {})
    shared = {
        product.dtype: product for product in shipped(content) if SHARED in product.entry.get("source", "")
    }
    forms = {dtype: vllm[product.operation][dtype]["form"] for dtype, product in shared.items()}
    errors_of = {dtype: vllm[product.operation][dtype]["error"] for dtype, product in shared.items()}
    for table in system_tables(package, ("experts",), _names(gpu), ("sglang",)) if shared else ():
        if table.dtype in shared and shared[table.dtype].entry["source"].endswith(table.source):
            apart, figures = table.points.where(~table.fitted), chip(devices.get(table.gpu), table.dtype)
            seconds = ENGINE_EXPERTS.seconds(GroupedTileWave(**forms[table.dtype]), figures, apart)
            errors_of[table.dtype] = errors(seconds, apart["time_us"] * 1e-6).model_dump(exclude_none=True)
    for dtype, product in shared.items():
        replace(gpu, product, {"form": forms[dtype], "error": errors_of[dtype]}, None, grids)


def follow(gpu: str, old: Mapped, new: Mapped, folder: Path = FOLDER) -> None:
    """Move what other calibrations of `folder` take from one whose products went from `old` to `new`.

    Entries "carried over from" it are copied again. Numbers by which a calibration `based_on` it differs keep
    their ratio to it, but for entries with a fit of their own. `estimate_kernels` makes those estimated.
    """
    after = {(product.library, product.operation, product.dtype): product.entry for product in shipped(new)}
    before = {(product.library, product.operation, product.dtype): product.entry for product in shipped(old)}
    for path in sorted(folder.glob("*.yaml")):
        unmoved = dict(read_mapping(path))
        content = copy.deepcopy(unmoved)
        for library, operation, dtype, entry in shipped(content):
            base = after.get((library, operation, dtype))
            if base is None:
                continue
            copied = entry.get("source") == f"carried over from {gpu}"
            if copied or (content.get("based_on") == gpu and "status" not in entry):
                for form in entry.keys() & base.keys() & set(FORMS):
                    was = before[library, operation, dtype][form]
                    entry[form] = dict(base[form]) if copied else scaled(entry[form], was, base[form])
        if content != unmoved:
            write_mapping(content, path)
            print(f"{path.stem} follows {gpu}", flush=True)
            follow(path.stem, unmoved, content, folder)


def scaled(numbers: Mapped, old: Mapped, new: Mapped) -> Mapped:
    """Return the numbers times what each of the same name has moved by; four digits, as fits write them."""
    return {
        name: float(f"{value * new[name] / old[name]:.4g}") if old.get(name) and name in new else value
        for name, value in numbers.items()
    }


def _names(gpu: str) -> tuple[str, ...]:
    """Devices with this calibration."""
    return tuple(device.name for device in devices if device.calibration == gpu)


FITTED_GPUS = sorted(path.name.removesuffix(GRIDS) for path in FOLDER.glob(f"*{GRIDS}"))


@command
def main(points: Path, package: Path, *, gpus: Annotated[Sequence[str], FITTED_GPUS] = FITTED_GPUS) -> None:
    """Fit the products of every device asked for."""
    for gpu in gpus:
        path = FOLDER / f"{gpu}.yaml"
        old = dict(read_mapping(path))
        content = copy.deepcopy(old)
        grids: dict[str, ResidualGrid] = dict(load_grids(path.with_name(f"{gpu}{GRIDS}")))
        if gpu in DEVICES or gpu in SERVED:
            by_points(gpu, content, grids, points)
        by_tables(gpu, content, grids, package)
        share_kernels(gpu, content, grids, package)
        save_grids(path.with_name(f"{gpu}{GRIDS}"), grids)
        write_mapping(content, path)
        follow(gpu, old, content)
