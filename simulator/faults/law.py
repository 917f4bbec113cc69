"""Laws of durations: fixed, exponential, uniform, log-normal, Weibull."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.durations import SomeTime, Span
from core.loading import Strict


class LognormalLaw(Strict):
    """A log-normal law by its median and mean."""

    median: SomeTime
    mean: SomeTime

    @model_validator(mode="after")
    def _mean_above(self) -> LognormalLaw:
        if self.mean < self.median:
            raise ValueError(f"mean: a log-normal mean is at least the median {self.median:g}")
        return self

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(2 * math.log(self.mean / self.median))


class WeibullLaw(Strict):
    """A Weibull law by its mean and shape."""

    mean: SomeTime
    shape: Annotated[float, Field(gt=0.05, le=100)]

    @property
    def scale(self) -> float:
        """Scale, s."""
        return self.mean / math.gamma(1 + 1 / self.shape)


class Law(Strict):
    """A law of a duration, s. A bare number or ``20 min`` is a fixed duration."""

    fixed: Span | None = None
    exponential: SomeTime | None = Field(None, description="mean")
    uniform: Annotated[list[Span], Field(min_length=2, max_length=2)] | None = Field(
        None, description="least and most"
    )
    lognormal: LognormalLaw | None = Field(None, description="`median` and `mean`")
    weibull: WeibullLaw | None = Field(None, description="`mean` and `shape`")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        return value if isinstance(value, Mapping | Law) else {"fixed": value}

    @model_validator(mode="after")
    def _single(self) -> Law:
        stated = [name for name, value in self if value is not None]
        if len(stated) != 1:
            raise ValueError(f"one law is needed ({', '.join(Law.model_fields)}), found {stated}")
        if self.uniform and self.uniform[1] < self.uniform[0]:
            raise ValueError(f"uniform: the most is below the least, found {self.uniform}")
        return self

    @classmethod
    def of(cls, seconds: float) -> Law:
        """A fixed duration."""
        return cls.model_validate({"fixed": seconds})

    @property
    def mean(self) -> float:
        """Mean, s."""
        if self.uniform is not None:
            return sum(self.uniform) / 2
        if self.lognormal or self.weibull:
            return (self.lognormal or self.weibull).mean  # type: ignore[union-attr]
        return self.exponential if self.exponential is not None else self.fixed or 0.0

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return ``count`` durations, s. A fixed law draws nothing from the generator."""
        if self.exponential is not None:
            return rng.exponential(self.exponential, count)
        if self.uniform is not None:
            return rng.uniform(self.uniform[0], self.uniform[1], count)
        if self.lognormal is not None:
            return rng.lognormal(math.log(self.lognormal.median), self.lognormal.sigma, count)
        if self.weibull is not None:
            return self.weibull.scale * rng.weibull(self.weibull.shape, count)
        return np.full(count, self.fixed or 0.0)

    def describe(self) -> str:
        """The law in words: ``600 s``, ``exponential, mean 600 s``."""
        if self.fixed is not None:
            return f"{self.fixed:g} s"
        name = next(name for name, value in self if value is not None)
        return f"{name}, mean {self.mean:g} s"
