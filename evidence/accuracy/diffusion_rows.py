"""Measured latencies and energies of diffusion models beside predictions, each model left out of the fit.

    python -m benchmarks.diffusion_rows DIFFUSION.csv [--table] [--constants]

Constants of the library (`simulator/diffusion/libraries/xdit.yaml`) are fitted on ML.ENERGY's rows of all
*other* models, and the row is predicted with them: host times of the library, and by device the time of
attention, elementwise kernels and convolutions over the calibrated kernels'. ``--constants`` prints those of
all models.
xDiT's own rows are predicted with the shipped constants. Rows of FLUX and Wan are never read.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import numpy as np
from scipy.optimize import least_squares

from core.errors import MeshwrightError
from evidence.accuracy.errors import HEAD, Spread
from evidence.command import command
from simulator.diffusion.libraries import diffusion_libraries
from simulator.diffusion.request import predict_request, request_times
from simulator.diffusion.scenario import make_diffusion
from simulator.diffusion.work import request_work

L20 = {
    "name": "l20-8",
    "device": "l20",
    "devices_per_node": 8,
    "nodes": 1,
    "levels": [{"name": "pcie", "kind": "pcie", "devices": 8, "bandwidth": 32e9}],
    "network": {"fabric": "roce", "nics_per_node": 1, "nic_gbps": 100},
}
CLUSTERS = {
    "H100": "dgx-h100",
    "H100?": "dgx-h100",
    "B200": "dgx-b200",
    "A100": "dgx-a100-80gb",
    "H20": "hgx-h20",
    "L20": L20,
}
"""Clusters of the rows' devices; ConsisID's rows do not state theirs, xDiT's L20 are on PCIe 4.0."""
TILED = ("tencent/HunyuanVideo",)
"""Models that xDiT's scripts decode in tiles (examples/run_hunyuan_video_usp.sh)."""
KEPT_APART = "flux", "wan"
HOST = "launch_s", "sequence_s", "ring_s", "request_s"
KERNELS = "attention", "memory", "convolution", "depthwise"
DEVICES = "default", "b200"
FEW = 0.05
"""Relative error from which a row's weight falls (soft L1)."""
PRIOR = 0.05
"""Weight of the shipped constants beside a row."""
ROWS_OF_A_MODEL = 40
"""Rows for which a model's rows count in full: models weigh the same, whatever their number of rows."""


def rows_of(path):
    """Rows of models that are not kept apart."""
    with path.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return [row for row in rows if not any(name in row["model"].lower() for name in KEPT_APART)]


def scenario(row):
    """A row as a scenario."""

    def number(name):
        return int(row[name] or 1)

    names = ("height", "width", "frames", "steps", "batch")
    return {
        "title": row["id"],
        "model": row["model"],
        "cluster": CLUSTERS[row["gpu"]],
        "workload": {"kind": "diffusion", **{name: number(name) for name in names}},
        "layout": {
            "ulysses": number("ulysses"),
            "ring": number("ring"),
            "guidance": number("cfg_parallel"),
            "pipefusion": number("pipefusion"),
            "tiling": row["model"] in TILED and "xDiT" in row["source"],
        },
    }


def library_with(library, logarithms):
    """A library with other constants, from their logarithms."""
    values = np.exp(logarithms)
    times = dict(library.times)
    for number, device in enumerate(DEVICES):
        kernels = values[len(HOST) + number * len(KERNELS) :][: len(KERNELS)]
        times[device] = times[device].model_copy(update=dict(zip(KERNELS, kernels, strict=True)))
    return library.model_copy(update={**dict(zip(HOST, values, strict=False)), "times": times})


def logarithms_of(library):
    """Logarithms of a library's constants."""
    host = [getattr(library, name) for name in HOST]
    kernels = [getattr(library.times[device], name) for device in DEVICES for name in KERNELS]
    return np.log([*host, *kernels])


def fitted(cases, library):
    """The library's constants fitted on some cases: logarithms of latencies, soft L1."""
    counts = defaultdict(int)
    for case in cases:
        counts[case["model"]] += 1
    weights = np.array([(ROWS_OF_A_MODEL / counts[case["model"]]) ** 0.5 for case in cases])
    measured, start = np.log([case["latency"] for case in cases]), logarithms_of(library)

    def residuals(logarithms):
        changed = library_with(library, logarithms)
        predicted = [request_times(case["setting"], case["work"], changed).latency_s for case in cases]
        return np.concatenate([weights * (np.log(predicted) - measured), PRIOR * (logarithms - start)])

    return library_with(library, least_squares(residuals, start, loss="soft_l1", f_scale=FEW).x)


def case_of(row):
    """A row with its setting and priced ops."""
    setting = make_diffusion(scenario(row), row["id"], Path())
    return {
        "row": row,
        "model": setting.model.name,
        "setting": setting,
        "work": request_work(setting),
        "latency": float(row["latency_s"]),
    }


def error_of(case, library):
    """Relative error of a predicted latency."""
    return request_times(case["setting"], case["work"], library).latency_s / case["latency"] - 1.0


def row_figures(name, errors):
    """Print the figures of errors."""
    if len(errors):
        print(f"{name:<46} {Spread.of(errors).words()}")


def scaling(cases, errors):
    """Errors of the speed-up from one device to several, layouts of one model, device and batch."""
    alone = {}
    for case, error in zip(cases, errors, strict=True):
        if case["setting"].layout.devices == 1:
            alone[key(case)] = error
    pairs = zip(cases, errors, strict=True)
    return {
        gpus: np.array(
            [
                (1.0 + alone[key(case)]) / (1.0 + error) - 1.0
                for case, error in pairs_of
                if case["setting"].layout.devices == gpus and key(case) in alone
            ]
        )
        for pairs_of in [list(pairs)]
        for gpus in (2, 4, 8)
    }


def key(case):
    """Rows that differ in their layout only."""
    row = case["row"]
    return row["model"], row["gpu"], row["batch"], row["height"], row["width"]


@command
def main(
    file: Path,
    *,
    table: Annotated[bool, "errors by model too"] = False,
    constants: Annotated[bool, "constants fitted on all rows"] = False,
) -> None:
    cases, skipped = [], defaultdict(int)
    for row in rows_of(file):
        if row["gpu"] not in CLUSTERS:
            skipped[f"no device {row['gpu']}"] += 1
            continue
        try:
            cases.append(case_of(row))
        except MeshwrightError as error:
            skipped[str(error)] += 1
    library = diffusion_libraries.get("xdit")
    ml = [case for case in cases if "ml-energy" in case["row"]["source"]]
    if constants:
        best = fitted(ml, library)
        for name in HOST:
            print(f"{name}: {getattr(best, name):.3g}")
        for device in DEVICES:
            print(device, {name: round(getattr(best.times[device], name), 3) for name in KERNELS})
    out = np.zeros(len(ml))
    for model in sorted({case["model"] for case in ml}):
        left = fitted([case for case in ml if case["model"] != model], library)
        for number, case in enumerate(ml):
            if case["model"] == model:
                out[number] = error_of(case, left)
    print(f"{'latency, ML.ENERGY, %':<46} {HEAD}")
    row_figures("  model left out", out)
    shipped = np.array([error_of(case, library) for case in ml])
    row_figures("  shipped constants", shipped)
    for gpus, errors in scaling(ml, out).items():
        row_figures(f"  speed-up on {gpus} devices, model left out", errors)
    if table:
        for model in sorted({case["model"] for case in ml}):
            mine = np.array([case["model"] == model for case in ml])
            row_figures(f"    {model}, left out", out[mine])
    watts = [predict_request(case["setting"]).joules / float(case["row"]["energy_j"]) - 1.0 for case in ml]
    row_figures("energy of one, shipped constants", np.array(watts))
    xdit = [case for case in cases if "xDiT" in case["row"]["source"]]
    row_figures(
        "latency, xDiT's own rows, shipped constants", np.array([error_of(case, library) for case in xdit])
    )
    for model in sorted({case["model"] for case in xdit}):
        for devices in (1, 2):
            rows = [case for case in xdit if case["model"] == model]
            rows = [case for case in rows if case["setting"].layout.guidance == devices]
            errors = np.array([error_of(case, library) for case in rows])
            row_figures(f"    {model}, guidance on {devices} devices", errors)
    for reason, count in skipped.items():
        print(f"left out: {count} rows: {reason}")
