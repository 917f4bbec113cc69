"""Point files from tables of a serving engine's kernels, one table a model, GPU and tensor-parallel degree.

    python -m benchmarks.serving_points TABLES -o POINTS

TABLES is a folder of `GPU_MODEL_tpN_KIND.csv.gz` as LLMServingSim's profiler measures them under vLLM
(casys-kaist/LLMServingSim): dense layers by tokens, the head by sequences, attention by (prefill chunk, KV
before it, decodes, their KV). Products, pure prefills, pure decodes and memory-bound kernels become point
files; mixed steps are left to `evidence/fits/mixed_attention.py`.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from evidence.command import command
from profiles import points

Row = dict[str, Any]
NAME = re.compile(r"(?P<gpu>rtx-pro-6000|rtx4090)_(?P<model>.+)_tp(?P<tensor>\d+)_(?P<kind>\w+)\.csv\.gz")
GPUS = {"rtx-pro-6000": "rtx-pro-6000", "rtx4090": "rtx-4090"}
SOURCE = "llmservingsim"


class ModelShape(NamedTuple):
    """Sizes of a measured model."""

    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int


SHAPES = {
    "llama-3.1-8b": ModelShape(4096, 14336, 32, 8, 128256),
    "qwen3-32b": ModelShape(5120, 25600, 64, 8, 151936),
    "qwen3-30b-a3b-instruct-2507": ModelShape(2048, 768, 32, 4, 151936),
}
HEAD_DIM = 128


class LayerTable(NamedTuple):
    """One measured table: its device, its model's shape on one rank, what it holds, its rows."""

    gpu: str
    shape: ModelShape
    tensor: int
    kind: str
    rows: list[dict[str, float | str]]


def read(folder: Path) -> Iterator[LayerTable]:
    """Yield the tables of a folder."""
    for path in sorted(folder.glob("*.csv.gz")):
        named = NAME.fullmatch(path.name)
        if named is None:
            continue
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [
                {key: value if key == "layer" else float(value) for key, value in row.items()}
                for row in csv.DictReader(file)
            ]
        shape, tensor = SHAPES[named["model"]], int(named["tensor"])
        rank = ModelShape(
            shape.hidden,
            shape.feed_forward // tensor,
            shape.heads // tensor,
            shape.kv_heads // tensor,
            shape.vocabulary // tensor,
        )
        yield LayerTable(GPUS[named["gpu"]], rank, tensor, named["kind"], rows)


def _points(table: LayerTable) -> Iterator[tuple[str, Row]]:
    if table.kind == "attention":
        yield from _attention(table)
    elif table.kind in ("dense", "per_sequence"):
        for row in table.rows:
            tokens = int(row.get("tokens") or row["sequences"])
            yield from _layer(table, str(row["layer"]), tokens, float(row["time_us"]))


def _attention(table: LayerTable) -> Iterator[tuple[str, Row]]:
    heads = {"n_heads": table.shape.heads, "n_kv_heads": table.shape.kv_heads, "head_dim": HEAD_DIM}
    for row in table.rows:
        chunk, before, decodes, cached = (
            int(row[name]) for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
        )
        common = {"gpu": table.gpu, "dtype": "bf16", **heads, "time_us": row["time_us"]}
        if not decodes:
            yield "attention_prefill", {**common, "batch": 1, "seq_q": chunk, "seq_kv": before + chunk}
        elif not chunk:
            yield "attention_decode", {**common, "batch": decodes, "seq_q": 1, "seq_kv": cached}


def _layer(table: LayerTable, layer: str, tokens: int, time_us: float) -> Iterator[tuple[str, Row]]:
    shape = table.shape
    width = (shape.heads + 2 * shape.kv_heads) * HEAD_DIM
    products = {
        "qkv_proj": (width, shape.hidden),
        "o_proj": (shape.hidden, shape.heads * HEAD_DIM),
        "gate_up_proj": (2 * shape.feed_forward, shape.hidden),
        "down_proj": (shape.hidden, shape.feed_forward),
        "lm_head": (shape.vocabulary, shape.hidden),
    }
    # The operation, its width, and elements moved a unit of width.
    bytes_moved = {
        "layernorm": ("rms_norm", shape.hidden, 4),
        "act_fn": ("silu_mul", shape.feed_forward, 3),
        "rotary_emb": ("rope", (shape.heads + shape.kv_heads) * HEAD_DIM, 2),
        "embedding": ("embedding", shape.hidden, 2),
    }
    if layer in products:
        n, k = products[layer]
        common = {"gpu": table.gpu, "dtype": "bf16", "time_us": time_us}
        yield "gemm", {**common, "m": tokens, "n": n, "k": k}
    elif layer in bytes_moved:
        op, dims, elements = bytes_moved[layer]
        sizes = {"tokens": tokens, "dims": str(dims), "bytes_per_token": 2 * elements * dims}
        yield "elementwise", {"op": op, "gpu": table.gpu, "dtype": "", **sizes, "time_us": time_us}


@command
def main(tables: Path, *, out: Annotated[Path, "-o"]) -> None:
    """Write the point files."""
    rows_of: dict[str, dict[tuple[str, ...], Row]] = {}
    for table in read(tables):
        for name, row in _points(table):
            key = points.TABLES[name].key(row)
            rows_of.setdefault(name, {}).setdefault(key, {"gpu": table.gpu, "source": SOURCE, **row})
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in rows_of.items():
        count = points.write(out / f"{name}.csv.gz", points.TABLES[name], rows.values())
        print(f"{name}: {count} points")
