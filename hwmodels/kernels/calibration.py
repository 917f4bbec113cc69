"""Calibrations: the fitted constants of a device's kernels, with their sources and their errors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from core.loading import Catalogue, Strict, Versioned
from hwmodels.kernels.attention import FlashAttention
from hwmodels.kernels.attention_decode import SplitKv
from hwmodels.kernels.attention_latent import LatentDecode
from hwmodels.kernels.attention_mixed import DecodesInPrefill
from hwmodels.kernels.gemm import Roofline, TileWave
from hwmodels.kernels.grouped_gemm import GroupedTileWave
from hwmodels.kernels.linear_attention import ChunkedScan
from hwmodels.kernels.memory_bound import MemoryBoundForm

Status = Literal["measured", "fitted-elsewhere", "estimated"]
FormT = TypeVar("FormT", bound=Strict)

FOLDER = Path(__file__).parent.parent / "calibrations"


class ErrorOnUnseen(Strict):
    """Relative error on shapes that the fit did not see; large means longer than 50 us."""

    shapes: int = Field(ge=0)
    median: float = Field(ge=0)
    p90: float = Field(ge=0)
    large_median: float | None = None
    large_p90: float | None = None
    small_median: float | None = None
    small_p90: float | None = None


GUESSED = ErrorOnUnseen(shapes=0, median=0.2, p90=0.5)
"""Error of an estimate without measured points."""


class CalibrationEntry(Strict):
    """Origin and error of the constants of one operation at one dtype."""

    status: Status
    source: str
    error: ErrorOnUnseen
    """Error of the form alone."""
    error_with_points: ErrorOnUnseen | None = None
    """Error with the residual grid's correction, where the calibration has a grid."""

    @property
    def band(self) -> ErrorOnUnseen:
        """Error of a prediction, with the correction where the calibration has one."""
        return self.error_with_points or self.error


class Fitted(CalibrationEntry, Generic[FormT]):
    """One operation at one dtype."""

    form: FormT


class Quantisation(Strict):
    """Casting activations inside a low-precision GEMM call, as serving libraries do."""

    overhead_s: float = Field(ge=0)
    memory_efficiency: float = Field(gt=0)


class FittedGemm(CalibrationEntry):
    """GEMM at one dtype: always the simple form; the rich form where enough points were measured."""

    simple: Roofline
    rich: TileWave | None = None
    quantisation: Quantisation | None = None


class Layouts(Strict):
    """Time of the two backward GEMM layouts over the forward layout's, at equal m, n and k."""

    status: Status
    source: str
    dgrad: float = Field(default=1.0, gt=0)
    wgrad: float = Field(default=1.0, gt=0)


class ExpertProducts(Strict):
    """Time of the products of experts over that of equally many dense products side by side."""

    status: Status = "estimated"
    source: str = "no public measurement; taken as equal"
    forward: float = Field(default=1.0, gt=0)
    dgrad: float = Field(default=1.0, gt=0)
    wgrad: float = Field(default=1.0, gt=0)


class HostLink(Strict):
    """Copies between device and host: bytes/s in one direction, and start-up time of a copy."""

    status: Status
    source: str
    bandwidth: float = Field(gt=0)
    overhead_s: float = Field(ge=0)


class Library(Strict):
    """Kernels of another library on the same device, where they differ from the default ones."""

    gemm: dict[str, FittedGemm] = Field(default_factory=dict)
    attention: dict[str, Fitted[FlashAttention]] = Field(default_factory=dict)
    attention_backward: dict[str, Fitted[FlashAttention]] = Field(default_factory=dict)
    attention_decode: dict[str, Fitted[SplitKv]] = Field(default_factory=dict)
    grouped_gemm: dict[str, Fitted[GroupedTileWave]] = Field(default_factory=dict)
    memory_bound: dict[str, Fitted[MemoryBoundForm]] = Field(default_factory=dict)
    latent: dict[str, Fitted[LatentDecode]] = Field(default_factory=dict)
    latent_prefill: dict[str, Fitted[FlashAttention]] = Field(default_factory=dict)
    scans: dict[str, Fitted[ChunkedScan]] = Field(default_factory=dict)


def _latent_decode() -> Fitted[LatentDecode]:
    source = "FlashMLA README (2025), H800: shares of peak and bandwidth"
    return Fitted(status="estimated", source=source, error=GUESSED, form=LatentDecode())


def _linear_attention() -> Fitted[ChunkedScan]:
    source = "no public table; shares of peak and bandwidth that Triton kernels usually reach"
    return Fitted(status="estimated", source=source, error=GUESSED, form=ChunkedScan())


class Calibration(Versioned):
    """All fitted constants of one kind of device, by operation and dtype.

    With `based_on`, constants missing in the file come from that shipped calibration and are marked
    estimated, with twice its error. Kernels of other libraries are carried over from
    `libraries_from`, which must be of the same architecture.
    """

    format: int = 2
    """Constants of format 1 are of another mean over tiles."""
    name: str
    multiprocessors: int = Field(gt=0)
    """Of the device that the constants are of: as many saturate the memory of one with more."""
    based_on: str | None = None
    libraries_from: str | None = None
    status: Status
    source: str
    launch_s: float = Field(gt=0)
    gemm: dict[str, FittedGemm]
    layouts: Layouts
    expert_products: ExpertProducts = Field(default_factory=ExpertProducts)
    attention: dict[str, Fitted[FlashAttention]]
    attention_backward: dict[str, Fitted[FlashAttention]]
    attention_decode: dict[str, Fitted[SplitKv]]
    grouped_gemm: dict[str, Fitted[GroupedTileWave]]
    memory_bound: dict[str, Fitted[MemoryBoundForm]]
    latent: dict[str, Fitted[LatentDecode]] = Field(default_factory=dict)
    """Latent decode by format of the arithmetic and the cache; `latent_decode` where none is measured."""
    latent_prefill: dict[str, Fitted[FlashAttention]] = Field(default_factory=dict)
    """Attention over expanded latent vectors, likewise; `attention` where none is measured."""
    latent_decode: Fitted[LatentDecode] = Field(default_factory=_latent_decode)
    scans: dict[str, Fitted[ChunkedScan]] = Field(default_factory=dict)
    """Linear attention by rule (`linear_attention.RULES`); `linear_attention` where none is measured."""
    linear_attention: Fitted[ChunkedScan] = Field(default_factory=_linear_attention)
    mixed_attention: Fitted[DecodesInPrefill] | None = None
    """Decodes of a mixed step in the prefill kernel; None where engines call two kernels."""
    host_copy: HostLink
    libraries: dict[str, Library] = Field(default_factory=dict)
    residuals: str | None = None
    """File of residual grids, beside the file that names it."""

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        libraries = _shipped(data, "libraries_from").get("libraries", {})
        base = _shipped(data, "based_on")
        return _merge(_merge(base, {"libraries": libraries} if libraries else {}), data)

    @field_validator("residuals")
    @classmethod
    def _beside_the_file(cls, value: str | None, info: ValidationInfo) -> str | None:
        folder = (info.context or {}).get("folder", FOLDER)
        return None if value is None else str(Path(folder) / value)


def _shipped(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the shipped calibration that a key names, as an estimate; empty without the key."""
    name = data.get(key)
    if not isinstance(name, str):
        return {}
    if name not in calibrations.names():
        raise ValueError(f"{key}: no shipped calibration is called {name!r}")
    shipped = calibrations.definition(name)
    libraries = _as_estimate(shipped.get("libraries", {}), name)
    return {**_as_estimate(shipped, name), "libraries": libraries if key == "libraries_from" else {}}


def _as_estimate(node: Any, base: str) -> Any:
    """Return a copy of a calibration's mapping in which every entry is an estimate."""
    if not isinstance(node, dict):
        return node
    left_out = ("residuals", "error_with_points", "libraries")
    copy = {key: _as_estimate(value, base) for key, value in node.items() if key not in left_out}
    if "status" in copy:
        copy["status"] = "estimated"
        copy["source"] = f"carried over from {base}"
    if "error" in copy:
        numbers = {key: value for key, value in copy["error"].items() if key in ("median", "p90")}
        copy["error"] = {"shapes": 0} | {key: 2.0 * value for key, value in numbers.items()}
    return copy


def _merge(base: Any, over: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)):
        return over
    return {**base, **{key: _merge(base.get(key), value) for key, value in over.items()}}


calibrations = Catalogue("calibration", FOLDER, Calibration)
