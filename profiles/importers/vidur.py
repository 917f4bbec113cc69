"""Profiling CSVs of Vidur: ``mlp.csv``, ``attention.csv`` and its network tables.

Times are medians in milliseconds with a resolution of a microsecond; weights and activations are fp16.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.files import beginning
from profiles.importers.common import CsvRow, Importer, ImportOptions, TablePoint, csv_rows

MICROSECONDS = 1000.0
ELEMENT = 2  # fp16
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")


def _recognises(path: Path) -> bool:
    return path.suffix == ".csv" and "time_stats." in beginning(path).split("\n", 1)[0]


def _read(path: Path, options: ImportOptions) -> Iterator[TablePoint]:
    for row in csv_rows(path):
        if "collective" in row:
            yield from _collective(row, path, options)
            continue
        common = {"gpu": options.gpu or _device(path), "source": options.source or "vidur"}
        points = _attention(row) if "prefill_chunk_size" in row else _layer(row)
        for table, values, operation in points:
            column = f"time_stats.{operation}.median"
            if column in row:
                yield table, {**common, **values, "time_us": row.time_us(column, MICROSECONDS)}


def _device(path: Path) -> str:
    """The device of ".../profiling/compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv": Vidur's are SXM."""
    for part in reversed(path.resolve().parts[:-1]):
        if part in ("a100", "h100"):
            return f"{part}-sxm"
        if part in ("a40", "v100"):
            return part
    return "unknown"


Measured = tuple[str, dict[str, Any], str]
"""Table, values, and the operation whose time it is."""


def _layer(row: CsvRow) -> Iterator[Measured]:
    hidden, inter = row.size("n_embd"), row.size("n_expanded_embd")
    heads, kv_heads, tp = row.size("n_head"), row.size("n_kv_head"), row.size("num_tensor_parallel_workers")
    tokens, head_dim = row.size("num_tokens"), hidden // heads
    gated = row.text("use_gated_mlp") == "True"
    for operation, n, k in (
        ("attn_pre_proj", (heads + 2 * kv_heads) * head_dim // tp, hidden),
        ("attn_post_proj", hidden, hidden // tp),
        ("mlp_up_proj", (2 if gated else 1) * inter // tp, hidden),
        ("mlp_down_proj", hidden, inter // tp),
    ):
        yield "gemm", {"dtype": "fp16", "layout": "forward", "m": tokens, "n": n, "k": k}, operation
    for operation, dims, width in (
        ("emb", hidden, 2),
        ("input_layernorm", hidden, 2),
        ("post_attention_layernorm", hidden, 2),
        ("attn_rope", (heads + kv_heads) * head_dim // tp, 2),
        ("mlp_act", inter // tp, 3 if gated else 2),
        ("add", hidden, 3),
    ):
        values = {"op": operation, "dtype": "fp16", "direction": "forward", "tokens": tokens}
        yield "elementwise", {**values, "dims": dims, "bytes_per_token": width * dims * ELEMENT}, operation


def _attention(row: CsvRow) -> Iterator[Measured]:
    tp = row.size("num_tensor_parallel_workers")
    heads = row.size("n_q_head")
    shape = {
        "batch": row.size("batch_size"),
        "n_heads": max(1, heads // tp),
        "n_kv_heads": max(1, row.size("n_kv_head") // tp),
        "head_dim": row.size("n_embd") // heads,
    }
    kernel = row.text("attention_backend", "").split(".")[-1].lower()
    common = {"dtype": "fp16", "kernel": kernel}
    cached = int(row.number("kv_cache_size"))
    if row.text("is_prefill") == "True":
        chunk = row.size("prefill_chunk_size")
        lengths = {"direction": "forward", "seq_q": chunk, "seq_kv": chunk + cached}
        yield "attention_prefill", {**common, **shape, **lengths}, "attn_prefill"
    elif cached:
        yield "attention_decode", {**common, **shape, "seq_q": 1, "seq_kv": cached}, "attn_decode"


def _collective(row: CsvRow, path: Path, options: ImportOptions) -> Iterator[TablePoint]:
    op = row.text("collective")
    if op not in COLLECTIVES:
        raise row.wrong("collective", f"one of {', '.join(COLLECTIVES)} is needed")
    ranks, per_node = row.size("num_workers"), row.size("devices_per_node")
    yield (
        "collectives",
        {
            "system": options.system or f"vidur-{path.parent.name}",
            "op": op,
            "dtype": "fp16",
            "n_gpus": ranks,
            "n_nodes": -(-ranks // per_node),
            "bytes": row.size("size"),
            "time_us": row.time_us(f"time_stats.{op}.median", MICROSECONDS),
            "source": options.source or "vidur",
        },
    )


VIDUR = Importer("vidur", "profiling CSVs of Vidur", _recognises, _read)
