"""Distributions of lengths of prompts, outputs and documents by kind: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Field

from simulator.lengths.base import Lengths
from simulator.lengths.empirical import Empirical
from simulator.lengths.fixed import FixedLength
from simulator.lengths.lognormal import Lognormal
from simulator.lengths.uniform import UniformLength

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
