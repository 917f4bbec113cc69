"""Bench of operations: random data, rotation past the cache, one timer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from profiles.measure.machine import Machine, require_torch
from profiles.measure.timing import Call, DeviceTimer, HostTimer, Method, Timing

if TYPE_CHECKING:
    import torch

Values = dict[str, str | int]
"""Identity of a point: the columns of its table except time, spread and source."""

TORCH_NAMES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
BYTES_PER_ELEMENT = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}

ROTATION_CACHES = 3  # a rotation spans this many last-level caches
MAX_COPIES = 64


@dataclass(frozen=True)
class Scope:
    """Limits of a plan.

    Attributes:
        mode: "quick" or "full".
        dtypes: dtypes to measure.
        machine: the machine to measure.
        storage: folder on the drive to measure, or None.
        flops_limit: largest operation, in FLOP; shapes above it are scaled down. A GPU has no limit.
        bytes_limit: largest operation, in bytes moved.
    """

    mode: Literal["quick", "full"]
    dtypes: tuple[str, ...]
    machine: Machine
    storage: Path | None = None
    flops_limit: float = float("inf")
    bytes_limit: float = float("inf")

    @property
    def main_dtype(self) -> str:
        """The dtype of operations that are bound by memory: the first that is not fp8."""
        plain = [dtype for dtype in self.dtypes if dtype != "fp8"]
        return plain[0] if plain else self.machine.default_dtypes()[0]

    def fits(self, flops: float, moved_bytes: float) -> bool:
        """Whether an operation is small enough to be measured here."""
        return flops <= self.flops_limit and moved_bytes <= self.bytes_limit


@dataclass(frozen=True)
class MeasuredOperation:
    """A measurable operation.

    Attributes:
        name: name for users.
        table: point file of its points.
        plan: the points to measure, for a scope.
        prepare: for a point, the rotation of calls to time. The calls own their inputs.
        method: how to time it.
        min_seconds: how long each of the five repeats runs at least.
        last: measure after everything else, because it heats the device.
    """

    name: str
    table: str
    plan: Callable[[Scope], Iterable[Values]]
    prepare: Callable[[Values, Bench], Sequence[Call]]
    method: Method = "graph"
    min_seconds: float = 0.02
    last: bool = False


@dataclass(frozen=True)
class BenchPoint:
    """One point of a plan: the operation's name, its table, and its identity."""

    operation: str
    table: str
    values: Mapping[str, str | int]

    def __str__(self) -> str:
        return f"{self.operation} " + " ".join(f"{key}={value}" for key, value in self.values.items())


@dataclass
class Bench:
    """Inputs and timers for one device.

    Attributes:
        without_graph: points for which no CUDA graph could be captured; they were issued kernel by kernel.
    """

    machine: Machine
    scratch: Path | None = None
    without_graph: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.torch = require_torch()
        self.device = self.torch.device(self.machine.torch_device)
        self.generator = self.torch.Generator(device=self.device).manual_seed(0)
        if self.machine.kind == "cuda":
            self.torch.cuda.set_device(self.device)
        self.timer = (
            HostTimer() if self.machine.kind == "cpu" else DeviceTimer(self.torch, self.machine.index)
        )

    def stream(self) -> AbstractContextManager[object]:
        """The stream of all work of a point."""
        if isinstance(self.timer, DeviceTimer):
            return self.torch.cuda.stream(self.timer.side)
        return nullcontext()

    def dtype(self, name: str) -> torch.dtype:
        """torch's dtype; AMD's MI300 has its own fp8."""
        if name == "fp8":
            return self.torch.float8_e4m3fnuz if self._is_mi300() else self.torch.float8_e4m3fn
        return getattr(self.torch, TORCH_NAMES[name])

    def _is_mi300(self) -> bool:
        if self.torch.version.hip is None:
            return False
        return self.torch.cuda.get_device_properties(self.device).gcnArchName.startswith("gfx942")

    def random(self, *shape: int, dtype: str) -> torch.Tensor:
        """Normal random numbers: kernels run faster, and cooler, on zeros."""
        if dtype == "fp8":
            return self.random(*shape, dtype="bf16").to(self.dtype("fp8"))
        return self.torch.randn(shape, dtype=self.dtype(dtype), device=self.device, generator=self.generator)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """Uniform random integers below ``high``."""
        return self.torch.randint(high, shape, device=self.device, generator=self.generator)

    def rotation(self, *shape: int, dtype: str) -> Iterator[torch.Tensor]:
        """Copies of one input that together are larger than the last-level cache."""
        copies = self.copies(BYTES_PER_ELEMENT[dtype] * _product(shape))
        return iter(self.random(copies, *shape, dtype=dtype))

    def copies(self, bytes_each: int) -> int:
        """Number of copies in a rotation."""
        copies = -(-ROTATION_CACHES * self.machine.cache_bytes // max(bytes_each, 1))
        return max(1, min(copies, MAX_COPIES))

    def time(self, operation: MeasuredOperation, point: BenchPoint) -> Timing:
        """Measure one point.

        Raises:
            Exception: whatever torch, or a library of kernels, says of a point that it cannot run here.
        """
        dtype = point.values.get("dtype")
        self.torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        with self.stream():
            calls = operation.prepare(dict(point.values), self)
            if operation.method != "graph" or self.machine.kind == "cpu":
                return self.timer.time(calls, operation.min_seconds, operation.method)
            with suppress(RuntimeError):
                return self.timer.time(calls, operation.min_seconds, "graph")
            # No graph, or no room for one; the failed one has given its memory back.
            timing = self.timer.time(calls, operation.min_seconds, "stream")
            self.without_graph.append(str(point))
            return timing

    def release(self) -> None:
        """Free the memory of a point, and wait until the device is idle."""
        if self.machine.kind == "cuda":
            self.torch.cuda.synchronize(self.device)
            self.torch.cuda.empty_cache()


def _product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
