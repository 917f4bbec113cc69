"""A figure of an engine preset with its origin."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field

from core.loading import Strict
from core.quantities import NotNegative

Kind = Literal["measured", "read", "derived", "assumed"]
"""measured: by its source; read: in the engine's code or documents; derived: fitted on published runs by
`evidence/fits/fit_engines.py`; assumed: neither."""
ValueT = TypeVar("ValueT", int, float, str, bool, list[float])


class Figure(Strict, Generic[ValueT]):
    """A number or a name with its origin."""

    value: ValueT
    kind: Kind
    source: str
    rows: Annotated[int, Field(ge=0)] | None = None
    """Number of published rows from which a derived figure was fitted."""
    left_out_error: NotNegative | None = None
    """Median relative error of TPOT on rows that the fit did not see."""
