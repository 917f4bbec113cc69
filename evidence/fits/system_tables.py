"""Kernel tables of AIConfigurator's systems data, as points by device, library, family and format.

The package (PyPI: aiconfigurator, aiconfigurator-core) holds ``systems/data/SYSTEM/.../FRAMEWORK/VERSION/
OPERATION_perf.parquet`` (text in versions up to 0.9). Times are of CUDA graphs in a loop, in ms.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiles.fitting.operations import DECODE, EXPERTS, FORWARD, RICH
from profiles.fitting.operations.operation import joined
from profiles.importers.common import dtype_name
from profiles.importers.physics import impossible
from profiles.points import TABLES, Points, PointTable

Columns = dict[str, np.ndarray]

GPUS = {
    "a100_sxm": "a100-sxm-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-server",
    "rtxpro6000_blackwell_server": "rtx-pro-6000-server",
}
DTYPES = {
    "w4a16_mxfp4": "mxfp4_w4a16",
    "w4a8_mxfp4_mxfp8": "mxfp4_w4a8",
    "int4_wo": "int4_w4a16",
    "sq": "int8",
    "int8_wo": "int8_w8a16",
}
"""Names of formats whose weights and activations differ."""
HOPPER, BLACKWELL = ("h100-sxm", "h200-sxm"), ("b200", "b300", "gb200", "gb300")
MICROSECONDS = 1000.0
NOT_GATED = (
    (2688, 1856, 128, 6),
    (1024, 2688, 512, 22),
    (4096, 2688, 512, 22),
    (2048, 5120, 512, 22),
    (8192, 5120, 512, 22),
)
"""Hidden size, width, experts and choices of Nemotron-3's layers, which have no gate: two products, not
three. TensorRT-LLM's collectors say so in the kernel's name, those of vLLM and SGLang do not."""
FEWEST_EXPERTS = 16
"""Least number of MXFP4 experts on a device of servers: gpt-oss-120b on eight, DeepSeek-V4's 256 on 16."""
LATENT_DIM, ROPE_DIM = 512, 64
"""DeepSeek-V3's latent vector, which all latent tables measure."""

SCAN = PointTable("scan", ())
STATE_STEP = PointTable("state_step", ())
LATENT_DECODE = PointTable("latent_decode", ())
LATENT_PREFILL = PointTable("latent_prefill", ())


class SystemTable(NamedTuple):
    """Points of one device, library, family and format; `source` names framework and version."""

    gpu: str
    library: str
    family: str
    dtype: str
    source: str
    points: Points
    keys: NDArray[np.str_]
    """What is kept apart together: the shape of a point without its tokens or lengths."""

    @property
    def fitted(self) -> NDArray[np.bool_]:
        """The half of the shapes that fits may read."""
        unique, inverse = np.unique(self.keys, return_inverse=True)
        halves = np.array([zlib.crc32(str(key).encode()) % 2 == 0 for key in unique])
        return halves[inverse]


def system_tables(
    package: Path, families: tuple[str, ...] = (), gpus: tuple[str, ...] = (), libraries: tuple[str, ...] = ()
) -> Iterator[SystemTable]:
    """Yield the tables of an unpacked package that measure what the kernel models predict.

    Args:
        package: folder that holds ``systems/data`` at some depth.
        families: of `FAMILIES`; all where empty, as with the other two.
        gpus: devices.
        libraries: serving frameworks.
    """
    for path in sorted([*package.rglob("*_perf.parquet"), *package.rglob("*_perf.txt")]):
        operation = path.name.partition("_perf")[0]
        gpu = next((GPUS[part] for part in path.parts if part in GPUS), None)
        if gpu is None or operation not in READERS or (gpus and gpu not in gpus):
            continue
        reader, names = READERS[operation]
        if families and not set(names) & set(families):
            continue
        library, version = path.parts[-3], path.parts[-2]
        if libraries and library not in libraries:
            continue
        for columns in reader(_columns(path), gpu, f"aic:{library}-{version}"):
            if _excluded(gpu, library, version, columns):
                continue
            kernels = _library(gpu, library, version, columns)
            points = columns.points.where(~_impossible(columns) & _served(library, columns))
            if len(points) and (not families or columns.family in families):
                keys = _key(columns.family, points)
                yield SystemTable(
                    gpu, kernels, columns.family, columns.dtype, f"{library}-{version}", points, keys
                )


class _Found(NamedTuple):
    family: str
    dtype: str
    points: Points


def _library(gpu: str, library: str, version: str, table: _Found) -> str:
    """The library that a table's kernels belong to: collectors of vLLM 0.19 and 0.22 timed Triton's experts,
    which Blackwell runs by default before 0.15 only."""
    triton = library == "vllm" and gpu in BLACKWELL and version in ("0.19.0", "0.22.0")
    experts = table.family == "experts" and table.dtype in ("bf16", "fp8", "fp8_block")
    return "vllm-triton" if triton and experts else library


def _excluded(gpu: str, library: str, version: str, table: _Found) -> bool:
    """Tables that measured something else than their name says."""
    copies = gpu == "b300" and library == "sglang" and version == "0.5.14"
    host_time = library == "vllm" and version == "0.24.0" and table[:2] == ("gemm", "fp8_block")
    unset_weights = library == "vllm" and table[:2] == ("gemm", "bf16")
    slow_build = version in ("0.18.0", "0.19.0") and table[:2] == ("experts", "int4_w4a16")
    # 4 to 8 times as long as TensorRT-LLM's at decode sizes, and longer than the same experts in 16 bits.
    untuned = gpu in HOPPER and version == "0.24.0" and table[:2] == ("experts", "fp8")
    # Attention over latent vectors, which SGLang runs on Hopper only after cached prefixes; Triton elsewhere.
    latent = library == "sglang" and gpu not in BLACKWELL and table.family == "latent_prefill"
    # 16-bit arithmetic on an 8-bit cache: its fallback for head dimensions that its kernels lack.
    fallback = library == "sglang" and table[:2] == ("prefill", "bf16_kvfp8") and gpu in (*HOPPER, *BLACKWELL)
    # Weights widened before the product; SGLang's default for gpt-oss there is triton_kernels.
    widened = library == "sglang" and gpu in HOPPER and table[:2] == ("experts", "mxfp4_w4a16")
    return any((copies, host_time, unset_weights, slow_build, untuned, latent, fallback, widened))


def _impossible(rows: _Found) -> NDArray[np.bool_]:
    if rows.points.table.name not in TABLES or rows.dtype in DTYPES.values():
        return np.zeros(len(rows.points), dtype=bool)
    return impossible(rows.points)


def _served(library: str, rows: _Found) -> NDArray[np.bool_]:
    """Which points have a layout that servers run: TensorRT-LLM's tables of MXFP4 experts go down to one
    expert a device (gpt-oss-120b on 128 ranks), whose few blocks leave multiprocessors idle. 13 MB take 58 us
    for 48 to 256 tokens on B200, and a form that has to hold those misses the layouts of servers."""
    if library != "trtllm" or rows[:2] != ("experts", "mxfp4_w4a8"):
        return np.ones(len(rows.points), dtype=bool)
    return rows.points["n_experts"] >= FEWEST_EXPERTS * rows.points["ep"]


def _columns(path: Path) -> Columns:
    if path.suffix == ".txt":
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        return {
            name: np.array(column) for name, column in zip(rows[0], zip(*rows[1:], strict=True), strict=True)
        }
    from pyarrow import parquet  # type: ignore[import-not-found]

    table = parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def _sizes(columns: Columns, **names: str) -> Columns:
    return {name: columns[column].astype(np.float64).astype(np.int64) for name, column in names.items()}


def _split(
    family: str,
    table: PointTable,
    gpu: str,
    source: str,
    columns: Columns,
    dtypes: np.ndarray,
    points: Columns,
) -> Iterator[_Found]:
    """Yield one table's points by format."""
    points = points | {"time_us": MICROSECONDS * columns["latency"].astype(np.float64)}
    valid = points["time_us"] > 0.0
    for dtype in np.unique(dtypes[valid]):
        selected = valid & (dtypes == dtype)
        part = {name: values[selected] for name, values in points.items()}
        count = int(selected.sum())
        part |= {
            name: np.full(count, text)
            for name, text in (("gpu", gpu), ("dtype", str(dtype)), ("source", source))
        }
        yield _Found(family, str(dtype), Points(table, part))


def _names(values: np.ndarray) -> np.ndarray:
    unique, inverse = np.unique(values.astype(str), return_inverse=True)
    return np.array([DTYPES.get(name, dtype_name(name)) for name in unique])[inverse]


def _gemm(columns: Columns, gpu: str, source: str) -> Iterator[_Found]:
    shape = _sizes(columns, m="m", n="n", k="k")
    shape["layout"] = np.full(len(shape["m"]), "forward")
    yield from _split("gemm", TABLES["gemm"], gpu, source, columns, _names(columns["gemm_dtype"]), shape)


def _cached(columns: Columns, arithmetic: str) -> np.ndarray:
    dtypes, caches = _names(columns[arithmetic]), _names(columns["kv_cache_dtype"])
    return np.where(dtypes == caches, dtypes, np.char.add(np.char.add(dtypes, "_kv"), caches))


def _attention(family: str, columns: Columns, gpu: str, source: str) -> Iterator[_Found]:
    heads = _sizes(columns, n_heads="num_heads", n_kv_heads="num_key_value_heads", head_dim="head_dim")
    heads["n_kv_heads"] = np.where(heads["n_kv_heads"] > 0, heads["n_kv_heads"], heads["n_heads"])
    lengths = _sizes(columns, batch="batch_size", seq_q="isl", step="step")
    step = lengths.pop("step")
    lengths["seq_kv"] = lengths["seq_q"] + step
    if family == "decode":
        lengths["seq_q"] = np.ones_like(step)
    texts = {name: np.full(len(step), text) for name, text in (("direction", "forward"), ("kernel", ""))}
    in_full = np.ones(len(step), dtype=bool)
    if "window_size" in columns:
        in_full = ~(np.nan_to_num(columns["window_size"].astype(np.float64)) > 0)
    table = TABLES["attention_decode" if family == "decode" else "attention_prefill"]
    values_of = {name: values[in_full] for name, values in (heads | lengths | texts).items()}
    columns = {name: values[in_full] for name, values in columns.items()}
    dtypes = _cached(columns, "attn_dtype")
    for dtype in np.unique(dtypes):
        selected = (dtypes == dtype) & _usual_kernel(columns, dtypes == dtype, "sglang" in source)
        part = {name: values[selected] for name, values in columns.items()}
        values = {name: values[selected] for name, values in values_of.items()}
        yield from _split(family, table, gpu, source, part, dtypes[selected], values)


def _usual_kernel(columns: Columns, selected: NDArray[np.bool_], several: bool) -> NDArray[np.bool_]:
    """Return the chosen rows of the kernel with most rows: some tables time a shape with several backends."""
    if not several:
        return selected
    kernels = columns["kernel_source"].astype(str)
    names, counts = np.unique(kernels[selected], return_counts=True)
    return selected & (kernels == names[np.argmax(counts)])


def _prefill(columns: Columns, gpu: str, source: str) -> Iterator[_Found]:
    yield from _attention("prefill", columns, gpu, source)


def _decode(columns: Columns, gpu: str, source: str) -> Iterator[_Found]:
    yield from _attention("decode", columns, gpu, source)


def _experts(columns: Columns, gpu: str, source: str) -> Iterator[_Found]:
    shape = _sizes(
        columns,
        tokens="num_tokens",
        hidden="hidden_size",
        inter="inter_size",
        topk="topk",
        n_experts="num_experts",
        tp="moe_tp_size",
        ep="moe_ep_size",
    )
    count = len(shape["tokens"])
    kernels, dtypes = columns["kernel_source"].astype(str), _names(columns["moe_dtype"])
    # Times of vLLM and SGLang do not fall with the degree, nor those of TensorRT-LLM's Triton kernel.
    falls = ("trtllm" in source) & (np.char.find(kernels, "triton_fp8_block") < 0)
    usable = (np.char.find(kernels, "nongated") < 0) & (falls | (shape["ep"] == 1))
    for layer in NOT_GATED:
        sizes = zip(("hidden", "inter", "n_experts", "topk"), layer, strict=True)
        usable &= ~np.logical_and.reduce([shape[name] == size for name, size in sizes])
    for dtype in np.unique(dtypes[usable]):
        of_format = usable & (dtypes == dtype)
        usable &= (dtypes != dtype) | _usual_kernel(columns, of_format, True)
    texts = {
        "direction": np.full(count, "forward"),
        "kernel": np.full(count, ""),
        "dist": columns["distribution"].astype(str),
    }
    values_of = {name: values[usable] for name, values in (shape | texts).items()}
    columns = {name: values[usable] for name, values in columns.items()}
    yield from _split("experts", TABLES["moe"], gpu, source, columns, dtypes[usable], values_of)


def _linear(columns: Columns, gpu: str, source: str) -> Iterator[_Found]:
    """Scans and state steps of the gated delta rule, KDA (a gate a channel) and Mamba-2."""
    if "nheads" in columns:
        names = {
            "heads": "nheads",
            "key_heads": "n_groups",
            "key_dim": "d_state",
            "value_dim": "head_dim",
            "chunk": "chunk_size",
        }
    else:
        names = {
            "heads": "num_v_heads",
            "key_heads": "num_k_heads",
            "key_dim": "head_k_dim",
            "value_dim": "head_v_dim",
        }
    shape = _sizes(columns, batch="batch_size", **names)
    count = len(shape["batch"])
    lengths = columns["seq_len"]
    # State steps leave the length out.
    shape["sequence"] = (
        np.array([1 if length is None or length == "" else float(length) for length in lengths]).astype(int)
        if lengths.dtype == object
        else np.nan_to_num(lengths.astype(np.float64), nan=1.0).astype(int)
    )
    shape.setdefault("chunk", np.full(count, 64))
    kind = columns["op_name"].astype(str)
    shape["delta"] = (kind != "mamba2").astype(np.int64)
    shape["channel_gate"] = (kind == "kda").astype(np.int64)
    kernels, phases = columns["kernel_source"].astype(str), columns["phase"].astype(str)
    core = np.char.find(kernels, "conv1d") < 0
    for table, phase in ((SCAN, "context"), (STATE_STEP, "generation")):
        selected = core & (phases == phase)
        part = {name: values[selected] for name, values in columns.items()}
        values_of = {name: values[selected] for name, values in shape.items()}
        dtypes = np.full(int(selected.sum()), "bf16")
        for points in _split(table.name, table, gpu, source, part, dtypes, values_of):
            yield points._replace(family=f"{table.name}/{kind[0]}")


def _latent(columns: Columns, gpu: str, source: str) -> Iterator[_Found]:
    decodes = columns["op_name"].astype(str)[0].startswith("mla_generation")
    table = LATENT_DECODE if decodes else LATENT_PREFILL
    shape = _sizes(columns, batch="batch_size", heads="num_heads", sequence="isl", step="step")
    shape["seq_kv"] = shape["sequence"] + shape.pop("step")
    dtypes = _cached(columns, "mla_dtype")
    yield from _split(table.name, table, gpu, source, columns, dtypes, shape)


Reader = Callable[[Columns, str, str], Iterator[_Found]]
SCANS = tuple(f"{table}/{kind}" for table in ("scan", "state_step") for kind in ("gdn", "kda", "mamba2"))
READERS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    "gemm": (_gemm, ("gemm",)),
    "context_attention": (_prefill, ("prefill",)),
    "generation_attention": (_decode, ("decode",)),
    "moe": (_experts, ("experts",)),
    "gdn": (_linear, SCANS),
    "kda": (_linear, SCANS),
    "mamba2": (_linear, SCANS),
    "context_mla": (_latent, ("latent_prefill",)),
    "generation_mla": (_latent, ("latent_decode",)),
}
FAMILIES = tuple(sorted({name for _, names in READERS.values() for name in names}))
OPERATIONS = {"gemm": RICH, "prefill": FORWARD, "decode": DECODE, "experts": EXPERTS}


def _key(family: str, points: Points) -> NDArray[np.str_]:
    if family in OPERATIONS:
        return OPERATIONS[family].key(points)
    names = {"latent_decode": ("heads", "batch"), "latent_prefill": ("heads", "batch")}
    return joined(*(points[name] for name in names.get(family, ("heads", "key_heads", "batch"))))
