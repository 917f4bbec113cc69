"""What a user's own measured steps say about the parts of a step: factors on kernels, links, host, memory.

A site file holds them for one device and framework (``meshwright learn``). A setting with a site multiplies
the time of each part by its factor; nothing else reads it.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from core.errors import InputError
from core.loading import Strict, build, read_mapping

SITE_FORMAT = 1
"""Version of site files; increased when older files become unreadable."""

FACTORS = ("products", "experts", "attention", "memory", "host", "node", "network", "exchange")
"""Parts of a step whose times a site scales (``simulator.uncertainty.parts``)."""

KERNELS: Mapping[str, str] = MappingProxyType(
    {
        "gemm": "products",
        "grouped_gemm": "experts",
        "attention": "attention",
        "scan": "attention",
        "linear_attention": "attention",
    }
)
"""Parts of kernel classes; all others are memory-bound."""

STEP_TOKENS = (1, 4, 16, 64, 256, 1024)
"""Tokens of steps whose errors are learned; between them the logarithm is linear in that of the tokens."""
BY_TOKENS = tuple(f"tokens_{tokens}" for tokens in STEP_TOKENS)
SERVER_FACTORS = ("products", "experts", "attention", "prefill", "host", "launches", "sequence", *BY_TOKENS)
"""Parts of a server's steps whose times a site scales: products, norms and all-reduces; routed experts;
attention of decodes; all that prompts add; gaps of a step; launches of steps without a graph; host work of
each sequence; kernels by the tokens of a step, with which they change their tiles and waves."""

LEAST, MOST = 0.1, 10.0
"""Factors outside are no calibration of a working machine."""


MOST_SPREAD = 2.0
"""Largest standard deviation of a logarithm: above it, one case in ten is wrong by a factor of 27."""
ROUNDING = 1e-6
"""Variance below which a covariance may miss symmetry, and be negative, as files round its elements."""


class SiteMemory(Strict):
    """Measured over predicted peak memory at a site."""

    factor: float = Field(default=1.0, ge=LEAST, le=MOST, description="of the peak of every plan")
    spread: float | None = Field(
        default=None, gt=0, le=MOST_SPREAD, description="standard deviation of its logarithm that is left"
    )


def _known_factors(value: dict[str, float], allowed: tuple[str, ...]) -> dict[str, float]:
    for name, factor in value.items():
        if name not in allowed:
            raise ValueError(f"{name!r} is no part; allowed: {', '.join(allowed)}")
        if not LEAST <= factor <= MOST:
            raise ValueError(f"{name}: must be a factor from {LEAST:g} to {MOST:g}, found {factor:g}")
    return value


class ServerSite(Strict):
    """Learned factors of servers of one device and engine."""

    source: str = Field(description="the measured servers that it was learned from")
    device: str
    engine: str = Field(description="preset of the engine")
    factors: dict[str, float] = Field(
        default_factory=dict, description="measured over priced time, by part of a step"
    )
    front_s: float = Field(
        default=0.0, ge=-60, le=60, description="seconds of TTFT outside of steps beyond the engine's own"
    )

    @field_validator("factors")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        return _known_factors(value, SERVER_FACTORS)

    def factor(self, part: str) -> float:
        """Measured over priced time of a part of a step."""
        return self.factors.get(part, 1.0)

    def by_tokens(self, tokens: NDArray[np.float64]) -> NDArray[np.float64] | float:
        """Measured over priced time of steps by their tokens."""
        factors = [self.factor(name) for name in BY_TOKENS]
        if all(factor == 1.0 for factor in factors):
            return 1.0
        return np.exp(np.interp(np.log(np.maximum(tokens, 1.0)), np.log(STEP_TOKENS), np.log(factors)))


class Site(Strict):
    """Learned factors of one device: of training with one framework, of servers of one engine, or both."""

    site_format: int = Field(description="version of the file")
    source: str = Field(description="the runs that it was learned from")
    device: str
    framework: str = Field(default="", description="of the training runs; empty where there are none")
    factors: dict[str, float] = Field(
        default_factory=dict, description="measured over calibrated time, by part"
    )
    server: ServerSite | None = Field(default=None, description="what measured servers taught")
    memory: SiteMemory = SiteMemory()
    parts: list[str] = Field(default_factory=list, description="parts of ``covariance``")
    covariance: list[list[float]] = Field(
        default_factory=list, description="of the parts' relative errors that is left after learning"
    )
    residual: float | None = Field(
        default=None, gt=0, le=MOST_SPREAD, description="error of a plan that no part explains"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, data: object) -> object:
        version = data.get("site_format", SITE_FORMAT) if isinstance(data, Mapping) else SITE_FORMAT
        if version != SITE_FORMAT:
            raise ValueError(
                f"was written by another version of Meshwright (format {version!r}, this one reads "
                f"{SITE_FORMAT}); re-create it with `meshwright learn`"
            )
        return data

    @field_validator("factors")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        return _known_factors(value, FACTORS)

    @model_validator(mode="after")
    def _is_covariance(self) -> "Site":
        """Refuse a matrix that is the covariance of no errors."""
        sizes = {len(self.covariance), *(len(row) for row in self.covariance)}
        if sizes != {len(self.parts)} and (self.covariance or self.parts):
            raise ValueError(
                f"covariance: {len(self.parts)} rows of {len(self.parts)} are needed, one for each of parts"
            )
        if not self.covariance:
            return self
        matrix = np.array(self.covariance)
        largest = float(np.abs(matrix).max())
        if not largest <= MOST_SPREAD**2:
            raise ValueError(
                f"covariance: must be variances of at most {MOST_SPREAD**2:g}, found {largest:g}"
            )
        if np.abs(matrix - matrix.T).max() > ROUNDING:
            raise ValueError("covariance: must be symmetric")
        least = float(np.linalg.eigvalsh(matrix).min())
        if least < -ROUNDING:
            raise ValueError(f"covariance: must have no variance below 0 in any direction, found {least:.3g}")
        return self

    def factor(self, part: str) -> float:
        """Measured over calibrated time of a part."""
        return self.factors.get(part, 1.0)

    def kernel(self, kind: str) -> float:
        """Factor of a kernel class."""
        return self.factor(KERNELS.get(kind, "memory"))

    @property
    def link_pace(self) -> tuple[float, float]:
        """Factors of collectives inside a domain and across the network."""
        return self.factor("node"), self.factor("network")


def read_site(reference: str | Path | Mapping[str, Any], where: str, folder: Path) -> Site:
    """Read a site file, or its mapping.

    Raises:
        InputError: unreadable, a wrong key or value, or a file of another version.
    """
    if isinstance(reference, Mapping):
        return build(Site, dict(reference), where)
    path = folder / reference
    return build(Site, read_mapping(path), str(path))


def check_site(site: Site, device: str, framework: str, where: str) -> None:
    """Refuse a site of another device or framework.

    Raises:
        InputError: it is, or it was learned from servers only.
    """
    if not site.framework:
        raise InputError("was learned from servers only, not from training steps", where)
    _check_place((("device", site.device, device), ("framework", site.framework, framework)), where)


def server_site(site: Site, where: str) -> ServerSite:
    """The server half of a site.

    Raises:
        InputError: the site was learned from training steps only.
    """
    if site.server is None:
        raise InputError("was learned from training steps only, not from servers", where)
    return site.server


def check_server(site: ServerSite, device: str, engine: str, where: str) -> None:
    """Refuse a site of another device or engine.

    Raises:
        InputError: it is.
    """
    _check_place((("device", site.device, device), ("engine", site.engine, engine)), where)


def _check_place(places: tuple[tuple[str, str, str], ...], where: str) -> None:
    for name, stated, present in places:
        if stated != present:
            raise InputError(f"was learned on the {name} {stated}, the question has {present}", where)
