"""What the operations that are bound by memory have in common.

``bytes_per_token`` is what the kernels that eager torch launches read and write, temporaries included, so
that the bandwidth that they reach holds for fused kernels too, which move less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import BYTES_PER_ELEMENT, Bench, MeasuredOperation, Scope, Values
from profiles.measure.timing import Call

if TYPE_CHECKING:
    import torch

HIDDEN = {"cpu": 1024, "cuda": 4096}

Inputs = Callable[[Bench, int, int, str], "Sequence[torch.Tensor]"]
"""(bench, tokens, dims, dtype) to the inputs; those that need a gradient are marked so."""

Elements = float | Callable[[str], float]


def token_counts(
    scope: Scope, bytes_per_token: float, backward: bool = False, small: bool = False
) -> list[int]:
    """How many tokens to measure so that the bytes moved are given multiples of the last-level cache.

    A CPU is measured below its cache, where small models train on it, and once beyond it, where the
    allocator asks the system for fresh pages at every call.

    Args:
        scope: full mode measures more sizes.
        bytes_per_token: bytes moved for one token.
        backward: fewer sizes.
        small: on a GPU in quick mode too, measure one size that stays in the cache.
    """
    multiples: tuple[float, ...]
    if scope.machine.kind == "cpu":
        multiples = (1 / 32, 1 / 8, 1 / 2, 4) if scope.mode == "full" else (1 / 8, 4)
    elif scope.mode == "full":
        multiples = (1 / 8, 5) if backward else (1 / 8, 2.5, 5, 10)
    else:
        multiples = (1 / 8, 4) if small else (4,)
    limit = scope.bytes_limit
    counts = [min(multiple * scope.machine.cache_bytes, limit) / bytes_per_token for multiple in multiples]
    return list(dict.fromkeys(max(1, round(tokens)) for tokens in counts))


def elementwise(
    op: str,
    inputs: Inputs,
    apply: Callable[..., torch.Tensor],
    *,
    forward: Elements,
    backward: Elements | None = None,
    dims: int | None = None,
    small: bool = False,
) -> MeasuredOperation:
    """An operation over (tokens, dims), measured forward and, if it has one, backward.

    Args:
        op: name in the ``op`` column.
        inputs: makes the inputs.
        apply: the forward pass.
        forward: elements that are read and written for each element of dims; a function of the dtype where
            kernels work in another.
        backward: the same for the backward pass; None when it is not measured.
        dims: width; None means a hidden size that suits the device.
        small: measure a size that stays in the cache in quick mode too.
    """

    def plan(scope: Scope) -> Iterator[Values]:
        dtype = scope.main_dtype
        width = dims or HIDDEN[scope.machine.kind]
        for direction, elements in (("forward", forward), ("backward", backward)):
            if elements is None:
                continue
            per_token = elements(dtype) if callable(elements) else elements
            moved_bytes = round(per_token * width * BYTES_PER_ELEMENT[dtype])
            for tokens in token_counts(
                scope, moved_bytes, direction == "backward", small and direction == "forward"
            ):
                yield {
                    "op": op,
                    "dtype": dtype,
                    "direction": direction,
                    "tokens": tokens,
                    "dims": width,
                    "bytes_per_token": moved_bytes,
                }

    def prepare(values: Values, bench: Bench) -> Sequence[Call]:
        tensors = inputs(bench, int(values["tokens"]), int(values["dims"]), str(values["dtype"]))
        if values["direction"] == "forward":
            detached = [tensor.detach() for tensor in tensors]
            return [lambda: apply(*detached)]
        return [gradient_call(bench, apply(*tensors), tensors)]

    return MeasuredOperation(op, "elementwise", plan, prepare)


def gradient_call(bench: Bench, output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Call:
    """A call that computes the gradients of ``output`` for those inputs that need one."""
    differentiable = [tensor for tensor in inputs if tensor.requires_grad]
    gradient = bench.torch.randn_like(output)
    return lambda: bench.torch.autograd.grad(output, differentiable, gradient, retain_graph=True)
