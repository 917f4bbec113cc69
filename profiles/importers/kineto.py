"""Traces of torch.profiler (Kineto) that were recorded with ``record_shapes=True``.

Matrix products, scaled dot-product attention, norms, activations, additions and collectives become
points. On a GPU the time of an operation is that of the kernels launched inside it; without a GPU it is
the operation's own. A shape that occurs often is one point: the median, but for collectives the
shortest, because a rank that waits for another only makes them longer.
"""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError, shown
from core.files import beginning
from profiles.importers.common import (
    BYTES,
    Importer,
    ImportOptions,
    TablePoint,
    dtype_name,
    parsed_json,
)
from profiles.measure.machine import catalogue_name

Event = Mapping[str, Any]
Key = tuple[str, tuple[tuple[str, Any], ...]]

PRODUCTS = {"aten::mm": 0, "aten::addmm": 1}
"""Operations with two matrices among their inputs, and the position of the first."""

ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 4,
    "aten::_scaled_dot_product_flash_attention_backward": 11,
    "aten::_scaled_dot_product_efficient_attention_backward": 11,
    "aten::_scaled_dot_product_cudnn_attention_backward": 14,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 7,
}
"""torch's attention operations, and the position of ``is_causal`` among their inputs."""

ELEMENTWISE = {
    "aten::native_layer_norm": ("layer_norm", "forward", 2),
    "aten::native_layer_norm_backward": ("layer_norm", "backward", 3),
    "aten::_fused_rms_norm": ("rms_norm", "forward", 2),
    "aten::_fused_rms_norm_backward": ("rms_norm", "backward", 3),
    "aten::gelu": ("gelu", "forward", 2),
    "aten::gelu_backward": ("gelu", "backward", 3),
    "aten::silu": ("silu", "forward", 2),
    "aten::silu_backward": ("silu", "backward", 3),
    "aten::add": ("add", "forward", 3),
}
"""Operations bound by memory: our name, direction, elements moved for each element."""

COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "alltoall",
    "all_to_all": "alltoall",
    "all_to_allv": "alltoall",
    "alltoall_base": "alltoall",
    "send": "send_recv",
    "recv": "send_recv",
}


TIMES = ("ts", "dur")
COUNTS = ("External id", "Group size", "In msg nelems", "Out msg nelems")
"""Keys of an event and of its ``args`` that hold numbers."""

MOST_BYTES = 2**29
"""Of a trace; parsing takes about eight times as much memory."""
WORDS = ("dtype", "layout", "kernel", "direction", "op")
"""Columns of a point that hold no size."""
LARGEST_SIZE = 2**48
"""Of one dimension of a tensor."""


def _recognises(path: Path) -> bool:
    if path.name.endswith(".json.gz"):
        try:
            with gzip.open(path, "rt", encoding="utf-8", errors="ignore") as file:
                start = file.read(65536)
        except (OSError, EOFError, zlib.error):
            return False
    elif path.suffix == ".json":
        start = beginning(path, 65536)
    else:
        return False
    return '"traceEvents"' in start or '"deviceProperties"' in start


def _load(path: Path) -> dict[str, Any]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read ({error})", str(path)) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"is larger than {MOST_BYTES // 2**20} MiB unpacked; record fewer steps", str(path))
    trace = parsed_json(data, path)
    if not isinstance(trace.get("traceEvents"), list):
        raise InputError("has no list of traceEvents: not a trace of torch.profiler", str(path))
    return trace


def _read(path: Path, options: ImportOptions) -> Iterator[TablePoint]:
    trace = _load(path)
    events = list(_complete(trace["traceEvents"], path))
    operations = [event for event in events if event.get("cat") == "cpu_op"]
    if not any(event.get("args", {}).get("Input Dims") for event in operations):
        raise InputError(
            "holds no shapes; record it with torch.profiler.profile(record_shapes=True)", str(path)
        )
    device = options.gpu or _device(trace)
    kernels = [event for event in events if event.get("cat") == "kernel"]
    times = _kernel_times(kernels, operations) if kernels else None
    samples_of: dict[Key, list[float]] = defaultdict(list)
    for event in operations:
        point = _point(event)
        microseconds = _time(event, times)
        if point is not None and microseconds > 0:
            samples_of[point].append(microseconds)
    source = options.source or "torch.profiler"
    for (table, values), samples in samples_of.items():
        yield table, {"gpu": device, **dict(values), **_summary(samples), "source": source}
    yield from _collectives(kernels or events, options, device, source)


def _complete(events: Sequence[object], path: Path) -> Iterator[Event]:
    """The complete events ("ph": "X") with the values that are read here checked.

    Raises:
        InputError: a value of a wrong type, with its place.
    """
    for index, event in enumerate(events):
        where = f"{path}: traceEvents.{index}"
        if not isinstance(event, Mapping):
            raise InputError(f"a mapping is needed, found {shown(event)}", where)
        if event.get("ph") != "X":
            continue
        inputs = event.get("args", {})
        if not isinstance(inputs, Mapping):
            raise InputError(f"args: a mapping is needed, found {shown(inputs)}", where)
        for values, names, needed in ((event, TIMES, "time"), (inputs, COUNTS, "number")):
            for name in names:
                value = values.get(name, 0)
                if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 2**64:
                    raise InputError(f"{name}: a {needed} is needed, found {shown(value)}", where)
        yield event


def _summary(samples: Sequence[float]) -> dict[str, float]:
    low, middle, high = np.percentile(samples, (25, 50, 75))
    return {"time_us": float(middle), "spread": float((high - low) / middle)}


def _device(trace: Mapping[str, Any]) -> str:
    properties = trace.get("deviceProperties") or []
    if not properties:
        return "cpu"
    first = properties[0] if isinstance(properties, list) else None
    return catalogue_name(str(first.get("name", "unknown"))) if isinstance(first, Mapping) else "unknown"


def _kernel_times(kernels: Sequence[Event], operations: Sequence[Event]) -> dict[int, float]:
    """Microseconds on the device of each operation with those inside it, by its external id."""
    times: dict[int, float] = defaultdict(float)
    for kernel in kernels:
        identity = _identity(kernel)
        if identity >= 0:
            times[identity] += float(kernel.get("dur", 0))
    inclusive = dict(times)
    for identity, around in _nesting(operations):
        for outer in around:
            inclusive[outer] = inclusive.get(outer, 0.0) + times.get(identity, 0.0)
    return inclusive


def _nesting(operations: Sequence[Event]) -> Iterator[tuple[int, list[int]]]:
    """Each operation with those of its thread that run around it, by external id."""
    threads: dict[Any, list[Event]] = defaultdict(list)
    for event in operations:
        threads[str(event.get("tid"))].append(event)
    for events in threads.values():
        around: list[tuple[float, int]] = []
        for event in sorted(events, key=lambda e: (float(e.get("ts", 0)), -float(e.get("dur", 0)))):
            start = float(event.get("ts", 0))
            while around and around[-1][0] <= start:
                around.pop()
            yield _identity(event), [identity for _, identity in around]
            around.append((start + float(event.get("dur", 0)), _identity(event)))


def _identity(event: Event) -> int:
    return int(event.get("args", {}).get("External id", -1))


def _time(event: Event, times: Mapping[int, float] | None) -> float:
    if times is None:
        return float(event.get("dur", 0))
    return times.get(_identity(event), 0.0)


def _point(event: Event) -> Key | None:
    """The point that an operation measures, without its time."""
    name, inputs = event.get("name", ""), event.get("args", {})
    dims, types = inputs.get("Input Dims") or [], inputs.get("Input type") or []
    key: Key | None = None
    try:
        if name in PRODUCTS:
            values = _product(dims, types, inputs.get("Input Strides") or [], PRODUCTS[name])
            key = ("gemm", tuple(values.items()))
        elif name in ATTENTION:
            key = _attention(name, dims, types, inputs.get("Concrete Inputs") or [])
        elif name in ELEMENTWISE:
            key = _elementwise(name, dims, types)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError):
        return None  # an overload with other inputs
    if key is None or not all(name in WORDS or _is_size(value) for name, value in key[1]):
        return None
    return key


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_SIZE


def _product(
    dims: Sequence[Sequence[int]], types: Sequence[str], strides: Sequence[Sequence[int]], first: int
) -> dict[str, Any]:
    (m, k), (_, n) = dims[first], dims[first + 1]
    layout = "forward"
    if strides:
        left, right = (_is_transposed(dims[i], strides[i]) for i in (first, first + 1))
        layout = "wgrad" if left else "forward" if right else "dgrad"
    return {"dtype": dtype_name(types[first]), "layout": layout, "m": m, "n": n, "k": k}


def _is_transposed(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a matrix lies with its rows, not its columns, next to each other."""
    return strides[0] == 1 and shape[1] > 1 and strides[1] >= shape[0]


def _attention(
    name: str, dims: Sequence[Sequence[int]], types: Sequence[str], concrete: Sequence[str]
) -> Key | None:
    backward = name.endswith("_backward")
    first = 1 if backward else 0
    batch, heads, seq_q, head_dim = dims[first]
    _, kv_heads, seq_kv, _ = dims[first + 1]
    causal = concrete[ATTENTION[name]].lower() in ("true", "1") if concrete else True
    values: dict[str, Any] = {"dtype": dtype_name(types[first]), "kernel": "sdpa", "batch": batch}
    values |= {
        "seq_q": seq_q,
        "seq_kv": seq_kv,
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "head_dim": head_dim,
    }
    if seq_q == 1 and not backward:
        return "attention_decode", tuple(values.items())
    if not causal:
        return None
    values["direction"] = "backward" if backward else "forward"
    return "attention_prefill", tuple(values.items())


def _elementwise(name: str, dims: Sequence[Sequence[int]], types: Sequence[str]) -> Key | None:
    op, direction, passes = ELEMENTWISE[name]
    shape = dims[0]
    if not shape or (op == "add" and dims[1] != shape):
        return None
    dtype = dtype_name(types[0])
    tokens, width = int(np.prod(shape[:-1])), int(shape[-1])
    values = {"op": op, "dtype": dtype, "direction": direction, "tokens": tokens, "dims": width}
    return "elementwise", tuple({**values, "bytes_per_token": passes * width * BYTES[dtype]}.items())


def _collectives(
    events: Sequence[Event], options: ImportOptions, device: str, source: str
) -> Iterator[TablePoint]:
    shortest: dict[Key, float] = {}
    for event in events:
        inputs = event.get("args", {})
        op = COLLECTIVES.get(str(inputs.get("Collective name", "")).lower())
        ranks, dtype = int(inputs.get("Group size", 0)), dtype_name(str(inputs.get("dtype", "")))
        if op is None or ranks < 2 or dtype not in BYTES or not event.get("dur"):
            continue
        elements = max(int(inputs.get("In msg nelems", 0)), int(inputs.get("Out msg nelems", 0)))
        if elements < 1:
            continue
        values = {"system": options.system or device, "op": op, "dtype": dtype, "n_gpus": ranks}
        values |= {"n_nodes": _nodes(inputs, ranks, options), "bytes": elements * BYTES[dtype]}
        key = ("collectives", tuple(values.items()))
        shortest[key] = min(shortest.get(key, float("inf")), float(event["dur"]))
    for (table, values), microseconds in shortest.items():
        yield table, {**dict(values), "time_us": microseconds, "source": source}


def _nodes(inputs: Mapping[str, Any], ranks: int, options: ImportOptions) -> int:
    """How many nodes a group spans, from its ranks if the trace lists them all."""
    listed = str(inputs.get("Process Group Ranks", ""))
    members = [int(part) for part in listed.strip("[]").split(",") if part.strip().isdigit()]
    if len(members) == ranks:
        return len({member // options.devices_per_node for member in members})
    return -(-ranks // options.devices_per_node)


KINETO = Importer("kineto", "traces of torch.profiler with shapes (.json, .json.gz)", _recognises, _read)
