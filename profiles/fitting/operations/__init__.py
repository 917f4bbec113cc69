"""The operations that can be fitted: one a file, found through this registry."""

from __future__ import annotations

from typing import Any

from profiles.fitting.operations.attention import BACKWARD, FORWARD
from profiles.fitting.operations.decode import DECODE
from profiles.fitting.operations.experts import EXPERTS
from profiles.fitting.operations.gemm import RICH, SIMPLE
from profiles.fitting.operations.memory_bound import MEMORY_BOUND
from profiles.fitting.operations.operation import FittedOperation

OPERATIONS: tuple[FittedOperation[Any], ...] = (
    SIMPLE,
    RICH,
    FORWARD,
    BACKWARD,
    DECODE,
    EXPERTS,
    MEMORY_BOUND,
)

__all__ = [
    "BACKWARD",
    "DECODE",
    "EXPERTS",
    "FORWARD",
    "MEMORY_BOUND",
    "OPERATIONS",
    "RICH",
    "SIMPLE",
    "FittedOperation",
]
