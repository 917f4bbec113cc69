"""Distributions of prompt and output lengths by kind: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Field

from simulator.serving.workload.lengths.base import Lengths
from simulator.serving.workload.lengths.empirical import Empirical
from simulator.serving.workload.lengths.fixed import FixedLength
from simulator.serving.workload.lengths.lognormal import Lognormal
from simulator.serving.workload.lengths.uniform import UniformLength

KINDS: tuple[type[Lengths], ...] = (FixedLength, UniformLength, Lognormal, Empirical)
lengths = {kind.model_fields["kind"].default: kind for kind in KINDS}


def _number_is_fixed(value: Any) -> Any:
    return {"kind": "fixed", "tokens": value} if isinstance(value, int) else value


if TYPE_CHECKING:
    AnyLengths = Lengths
else:
    AnyLengths = Annotated[
        Union[KINDS],  # noqa: UP007
        Field(discriminator="kind"),
        BeforeValidator(_number_is_fixed),
    ]
    """A number of tokens, or a distribution by kind."""

__all__ = ["AnyLengths", "Lengths", "lengths"]
