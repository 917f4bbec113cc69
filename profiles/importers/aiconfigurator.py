"""Performance folders of NVIDIA's aiconfigurator: ``data/SYSTEM/FRAMEWORK/VERSION/OPERATION_perf.txt``.

Times are milliseconds; message sizes are elements, not bytes. Tables that our files have no place for
(MLA modules, state-space layers, ...) are passed over, and so are rows with a sliding window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.errors import InputError
from profiles.importers.common import BYTES, CsvRow, Importer, ImportOptions, TablePoint, csv_rows, dtype_name
from profiles.measure.machine import catalogue_name

MICROSECONDS = 1000.0  # one unit of the latency column


def _gemm(row: CsvRow) -> TablePoint | None:
    values = {"dtype": dtype_name(row.text("gemm_dtype")), "layout": "forward"}
    return "gemm", {**values, **{name: row.size(name) for name in "mnk"}}


def _heads(row: CsvRow) -> dict[str, int]:
    heads = row.size("num_heads")
    kv_heads = int(row.number("num_key_value_heads")) or heads  # 0 means as many as query heads
    return {"n_heads": heads, "n_kv_heads": kv_heads, "head_dim": row.size("head_dim")}


def _attention_dtype(row: CsvRow) -> str:
    dtype, cache = dtype_name(row.text("attn_dtype")), dtype_name(row.text("kv_cache_dtype"))
    return dtype if cache == dtype or cache not in BYTES else f"{dtype}_kv{cache}"


def _has_window(row: CsvRow) -> bool:
    return "window_size" in row and row.number("window_size") > 0


def _context_attention(row: CsvRow) -> TablePoint | None:
    if _has_window(row):
        return None
    queries = row.size("isl")
    before = int(row.number("step")) if "step" in row else 0
    values = {"dtype": _attention_dtype(row), "direction": "forward", "kernel": row.text("kernel_source", "")}
    lengths = {"batch": row.size("batch_size"), "seq_q": queries, "seq_kv": queries + before}
    return "attention_prefill", {**values, **lengths, **_heads(row)}


def _generation_attention(row: CsvRow) -> TablePoint | None:
    if _has_window(row):
        return None
    cached = row.size("isl") + int(row.number("step"))
    values = {"dtype": _attention_dtype(row), "kernel": row.text("kernel_source", "")}
    lengths = {"batch": row.size("batch_size"), "seq_q": 1, "seq_kv": cached}
    return "attention_decode", {**values, **lengths, **_heads(row)}


def _moe(row: CsvRow) -> TablePoint | None:
    return "moe", {
        "dtype": dtype_name(row.text("moe_dtype")),
        "direction": "forward",
        "kernel": row.text("kernel_source", ""),
        "tokens": row.size("num_tokens"),
        "hidden": row.size("hidden_size"),
        "inter": row.size("inter_size"),
        "topk": row.size("topk"),
        "n_experts": row.size("num_experts"),
        "tp": row.size("moe_tp_size"),
        "ep": row.size("moe_ep_size"),
        "dist": row.text("distribution", "balanced"),
    }


def _collective(op: str, dtype_column: str, row: CsvRow) -> TablePoint | None:
    dtype = dtype_name(row.text(dtype_column))
    if dtype not in BYTES:
        raise row.wrong(dtype_column, f"one of {', '.join(BYTES)} is needed")
    ranks, size = row.size("num_gpus"), row.size("message_size") * BYTES[dtype]
    return "collectives", {"op": op, "dtype": dtype, "n_gpus": ranks, "n_nodes": 1, "bytes": size}


def _nccl(row: CsvRow) -> TablePoint | None:
    return _collective(row.text("op_name"), "nccl_dtype", row)


def _custom_all_reduce(row: CsvRow) -> TablePoint | None:
    return _collective("all_reduce", "allreduce_dtype", row)


READERS: dict[str, Callable[[CsvRow], TablePoint | None]] = {
    "gemm": _gemm,
    "context_attention": _context_attention,
    "generation_attention": _generation_attention,
    "moe": _moe,
    "nccl": _nccl,
    "oneccl": _nccl,
    "custom_allreduce": _custom_all_reduce,
}


def _operation(path: Path) -> str:
    match = re.fullmatch(r"(\w+)_perf\.(txt|csv|parquet)", path.name)
    return match[1] if match else ""


def _recognises(path: Path) -> bool:
    return _operation(path) in READERS


def _read(path: Path, options: ImportOptions) -> Iterator[TablePoint]:
    operation = _operation(path)
    if operation not in READERS:
        tables = ", ".join(f"{name}_perf.txt" for name in READERS)
        raise InputError(f"is not a table that can be read; those are {tables}", str(path))
    rows = _parquet_rows(path) if path.suffix == ".parquet" else _text_rows(path)
    for row in rows:
        point = READERS[operation](row)
        if point is None:
            continue
        table, values = point
        yield (
            table,
            values
            | _place(path, row, operation, options)
            | {"time_us": row.time_us("latency", MICROSECONDS)},
        )


def _place(path: Path, row: CsvRow, operation: str, options: ImportOptions) -> dict[str, str]:
    """Device and source columns, from the options, the row, or the folders the file lies in."""
    device = options.gpu or _folder_device(path) or catalogue_name(row.text("device"))
    framework = row.text("framework", path.parent.parent.name).lower()
    version = row.text("version", path.parent.name)
    kind = "custom-" if operation == "custom_allreduce" else ""
    source = options.source or f"aiconfigurator:{kind}{framework}-{version}"
    column = "system" if READERS[operation] in (_nccl, _custom_all_reduce) else "gpu"
    return {column: (options.system if column == "system" else "") or device, "source": source}


def _folder_device(path: Path) -> str:
    """ "h100-sxm" of ".../data/h100_sxm/trtllm/1.0.0/gemm_perf.txt"."""
    parts = path.resolve().parts
    if "data" in parts[:-1]:
        below = parts[len(parts) - parts[::-1].index("data") :]
        if len(below) == 4:
            name = below[0].replace("_", "-")
            return name.removesuffix("-sxm") if name.startswith(("b200", "b300")) else name
    return ""


def _text_rows(path: Path) -> Iterator[CsvRow]:
    with path.open("rb") as file:
        if file.read(24).startswith(b"version https://git-lfs"):
            raise InputError("is a pointer of git-lfs; fetch the file itself with 'git lfs pull'", str(path))
    return csv_rows(path)


def _parquet_rows(path: Path) -> Iterator[CsvRow]:
    try:
        from pyarrow import parquet  # type: ignore[import-not-found]
    except ImportError:
        raise InputError(
            "reading parquet needs pyarrow; install it with: pip install pyarrow", str(path)
        ) from None
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    for index, cells in enumerate(rows, start=2):
        yield CsvRow(
            {name: "" if value is None else str(value) for name, value in cells.items()}, path, index
        )


AICONFIGURATOR = Importer(
    "aiconfigurator", "performance tables of aiconfigurator (*_perf.txt)", _recognises, _read
)
