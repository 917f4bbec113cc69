"""Large products held for a fifth of a second and more: what power throttling leaves."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.measure.bench import MeasuredOperation, Scope, Values
from profiles.measure.operations.gemm import fitting_shapes, prepare


def _plan(scope: Scope) -> Iterator[Values]:
    dtype = scope.main_dtype
    for shape in fitting_shapes("sustained", scope, dtype):
        yield {"dtype": dtype, "layout": "forward", **shape}


SUSTAINED = MeasuredOperation("sustained_gemm", "gemm", _plan, prepare, min_seconds=0.2, last=True)
