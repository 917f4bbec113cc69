"""Where classes of state lie: shares on host and SSDs, units of copies, and who updates."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field, field_validator, model_validator

from core.loading import Strict

StateClass = Literal["parameters", "gradients", "optimizer", "activations"]
STATE_CLASSES: tuple[StateClass, ...] = ("parameters", "gradients", "optimizer", "activations")
Unit = Literal["layer", "sub-group", "chunk", "whole"]
Share = float | Literal["auto"]
UNIT_PARAMETERS: Mapping[Unit, float] = MappingProxyType(
    {"layer": 0.0, "sub-group": 1e9, "chunk": 64 * 1024**2, "whole": float("inf")}
)
"""Parameters that one copy moves at most; 0: those of a layer. Sub-groups: sub_group_size defaults to 1e9
(DeepSpeed, runtime/zero/config.py); chunks: default_chunk_size of 64 Mi elements (PatrickStar, examples)."""


def checked_share(share: Share) -> Share:
    """A share as it is given.

    Raises:
        ValueError: neither auto nor a number from 0 to 1.
    """
    if share != "auto" and not 0 <= share <= 1:
        raise ValueError("a share from 0 to 1 or auto is needed")
    return share


class Shares(Strict):
    """The shares of one class of state on each tier; the rest stays on the device."""

    host: Share = Field(
        default=0.0, description="share in host memory; auto: as much as costs no time or must leave"
    )
    nvme: Share = Field(default=0.0, description="share on the node's SSDs")
    file_system: float = Field(default=0.0, ge=0, le=1, description="share on the file system of the cluster")
    device: float | None = Field(
        default=None, ge=0, le=1, description="share on the device; by default what is left"
    )
    unit: Unit = Field(
        default="layer",
        description="what one copy moves: a layer, a sub-group of 1e9 or a chunk of 64 Mi parameters, or all",
    )
    prefetch: int = Field(
        default=1,
        ge=0,
        le=2**10,
        description="units copied ahead of their use, beside kernels; 0: kernels wait for each copy",
    )

    @field_validator("host", "nvme")
    @classmethod
    def _a_share(cls, share: Share) -> Share:
        return checked_share(share)

    @model_validator(mode="after")
    def _add_up(self) -> "Shares":
        if self.automatic:
            return self
        off = self.off_device
        if off > 1 + 1e-9:
            raise ValueError(f"shares add up to {off:g}, more than 1")
        if self.device is not None and abs(off + self.device - 1) > 1e-9:
            raise ValueError(f"shares add up to {off + self.device:g}, not to 1")
        return self

    @property
    def automatic(self) -> bool:
        """Whether a share is left to the model."""
        return "auto" in (self.host, self.nvme)

    @property
    def off_device(self) -> float:
        """Share that lies off the device; an automatic one counts as 0."""
        return sum(share for share in (self.host, self.nvme, self.file_system) if share != "auto")


NOWHERE = Shares.model_validate({})


class Tiers(Strict):
    """Where each class of state lies."""

    parameters: Shares = Field(default=NOWHERE, description="working parameters")
    gradients: Shares = Field(default=NOWHERE, description="accumulated gradients")
    optimizer: Shares = Field(default=NOWHERE, description="master copy and moments")
    activations: Shares = Field(default=NOWHERE, description="what forward passes keep for backward passes")

    @model_validator(mode="after")
    def _tiers(self) -> "Tiers":
        if self.gradients.automatic:
            raise ValueError("gradients: auto is for activations, optimizer and parameters; state a share")
        if self.activations.file_system:
            raise ValueError("activations.file_system: activations go to host or nvme")
        return self

    def of(self, kind: StateClass) -> Shares:
        """The shares of a class."""
        return getattr(self, kind)


class Update(Strict):
    """Where and when the optimizer runs."""

    on: Literal["device", "host"] = Field(
        default="device", description="what updates the state that lies off the device"
    )
    delayed: bool = Field(
        default=False,
        description="whether the update of a step runs beside the next one, whose gradients come a step late",
    )
    beside_backward: bool = Field(
        default=False,
        description="whether sub-groups are updated as their gradients come, beside the backward pass",
    )
    pipelined: bool = Field(
        default=True,
        description="whether sub-groups are copied while others are updated, or one after the other",
    )
    master_on_device: bool = Field(
        default=False,
        description="whether the 32-bit weights stay on the device: moments alone leave, 32-bit gradients go "
        "down and weights come back (Megatron Core's hybrid optimizer)",
    )
    share_on_device: Share = Field(
        default=0.0,
        description="share of the sub-groups of the host that are copied to the device, updated there and "
        "copied back; auto: the closed form's best",
    )
    every: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="steps between two updates on the host of the gradients that the device does not apply "
        "at once (ZenFlow)",
    )
    important: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the parameters that the device updates in every step (top-k)",
    )

    @field_validator("share_on_device")
    @classmethod
    def _a_share(cls, share: Share) -> Share:
        return checked_share(share)

    @model_validator(mode="after")
    def _consistent(self) -> "Update":
        share = self.share_on_device
        if self.on == "device" and (self.delayed or self.beside_backward or share or self.every > 1):
            raise ValueError(
                "on: device updates all state in every step; delayed, shares and every need on: host"
            )
        if self.on == "device" and self.master_on_device:
            raise ValueError("master_on_device: moments leave for a host that updates; on: host is needed")
        if self.delayed and self.beside_backward:
            raise ValueError("delayed and beside_backward exclude each other")
        return self
