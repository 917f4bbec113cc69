"""Low-rank adapters of many fine-tuned models, as a deployment states them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from core.loading import Strict

Popularity = Literal["uniform", "distinct", "identical"]


class Popular(Strict):
    """How often each adapter is asked for."""

    zipf: float | None = Field(None, gt=0, le=10, description="adapter i with weight i^-zipf")
    shares: list[float] = Field(default_factory=list, description="weights of adapters 1, 2, ...")

    @model_validator(mode="after")
    def _one_of_them(self) -> Popular:
        if (self.zipf is None) == (not self.shares):
            raise ValueError("give zipf or shares")
        if self.shares and (min(self.shares) < 0 or not sum(self.shares)):
            raise ValueError("shares must not be negative, nor all zero")
        return self


class Adapters(Strict):
    """Adapters, one for each request, over one base model."""

    count: int = Field(ge=1, le=10**5, description="adapters that requests ask for")
    rank: int = Field(ge=1, le=4096, description="rank of an adapter; the mean where ranks differ")
    popularity: Popularity | Popular = Field(
        "uniform",
        description="uniform, identical (all one), distinct (each its own), {zipf: s} or {shares: [...]}",
    )
    memory: Annotated[float, Field(gt=0, le=1e6)] | Literal["shared"] | None = Field(
        None,
        description="GB of a replica's devices that hold adapters; shared: those of running sequences take "
        "KV blocks; default: one for each running sequence",
    )
    kernel: str = Field("sgmv", description="how a batch of different adapters is computed (`show adapters`)")
    options: dict[str, Any] = Field(default_factory=dict, description="parameters of the kernel")
    products: Literal["all", "attention"] = Field(
        "all", description="products with an adapter: attention's and the MLP's, or attention's"
    )

    @model_validator(mode="after")
    def _enough(self) -> Adapters:
        if isinstance(self.popularity, Popular) and len(self.popularity.shares) > self.count:
            shares = len(self.popularity.shares)
            raise ValueError(f"popularity.shares: at most count ({self.count}) of them, found {shares}")
        return self
