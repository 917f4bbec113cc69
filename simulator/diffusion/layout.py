"""How one request is laid on devices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.loading import Strict
from core.quantities import Few


class Layout(Strict):
    """Degrees of parallelism of one replica; devices are their product."""

    ulysses: Few = Field(1, description="ranks that exchange heads for tokens around attention")
    ring: Few = Field(1, description="ranks that pass keys and values on around attention")
    guidance: Literal[1, 2] = Field(1, description="2: calls with and without the prompt run on two devices")
    pipefusion: Few = Field(
        1, description="stages of blocks through which patches pass with stale neighbours"
    )
    patches: Few = Field(1, description="ranks with a patch each and stale keys of the others (DistriFusion)")
    warm_up: Annotated[int, Field(ge=0, le=10_000)] = Field(
        5,
        description="first steps of `patches` whose exchange shows in full (distrifuser, pp/attn.py: the "
        "first, and warmup_steps, 4 by default)",
    )
    conditioning: float = Field(
        1.0, ge=0, le=1, description="share of the other patches' keys that a rank reads (PCPP: 0.3)"
    )
    data: Few = Field(1, description="copies of all this, among which the prompts of a batch are divided")
    sharded: bool = Field(
        False,
        description="weights of a block are divided among the copies, or among all devices of the only one, "
        "and gathered before it runs (FSDP; with offload: layers each part comes from its own host memory)",
    )
    decoder: Few = Field(1, description="ranks among which the decoder's pixels are divided")
    tiling: bool = Field(False, description="the decoder works on tiles that overlap: less memory, more work")
    offload: Literal["none", "layers"] = Field(
        "none", description="layers: weights of a block come from the host while another computes"
    )

    @property
    def devices(self) -> int:
        """Devices of a replica."""
        return self.copy_devices * self.data

    @property
    def copy_devices(self) -> int:
        """Devices of one copy."""
        return self.ulysses * self.ring * self.guidance * self.pipefusion * self.patches

    @property
    def holders(self) -> int:
        """Devices among which the weights of a block are divided."""
        if not self.sharded:
            return 1
        return self.data if self.data > 1 else self.copy_devices

    @property
    def resident(self) -> bool:
        """Whether a device keeps all weights that it computes with."""
        return self.offload == "none" and not self.sharded

    @property
    def sequence(self) -> int:
        """Ranks among which the tokens of a sample are divided, at one time."""
        return self.ulysses * self.ring * self.patches

    @model_validator(mode="after")
    def _one_kind(self) -> Layout:
        if self.patches > 1 and self.ulysses * self.ring > 1:
            raise ValueError("patches with stale neighbours do not go with ulysses or ring")
        if self.conditioning < 1 and self.patches == 1:
            raise ValueError("conditioning is a share of other patches; the layout has one")
        if self.decoder > self.copy_devices:
            raise ValueError(f"decoder ({self.decoder}): a copy has {self.copy_devices} devices")
        if self.sharded and self.holders == 1:
            raise ValueError("sharded: one device holds all weights; allowed: false")
        if self.sharded and self.pipefusion > 1:
            raise ValueError("sharded: stages of pipefusion hold different blocks; allowed: false")
        return self
