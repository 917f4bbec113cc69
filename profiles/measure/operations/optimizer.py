"""Fused AdamW with fp32 parameters, gradients and moments: 28 bytes a parameter.

It reads parameter, gradient and two moments and writes all but the gradient. A "token" is one row of
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiles.measure.bench import Bench, MeasuredOperation, Scope, Values
from profiles.measure.operations.elementwise import token_counts
from profiles.measure.timing import Call

ROW = 1024
BYTES_PER_PARAMETER = 28


def _plan(scope: Scope) -> Iterator[Values]:
    bytes_per_row = ROW * BYTES_PER_PARAMETER
    for rows in token_counts(scope, bytes_per_row):
        yield {
            "op": "adam",
            "dtype": "fp32",
            "direction": "forward",
            "tokens": rows,
            "dims": ROW,
            "bytes_per_token": bytes_per_row,
        }


def _prepare(values: Values, bench: Bench) -> Sequence[Call]:
    torch = bench.torch
    parameters = torch.nn.Parameter(bench.random(int(values["tokens"]), int(values["dims"]), dtype="fp32"))
    parameters.grad = torch.randn_like(parameters)
    optimizer = torch.optim.AdamW([parameters], fused=True, capturable=bench.machine.kind == "cuda")
    return [optimizer.step]


ADAM = MeasuredOperation("adam", "elementwise", _plan, _prepare)
