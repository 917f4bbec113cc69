"""Levels at which a class of state is sharded, and levels that hold further copies of parameters."""

from typing import Literal

from pydantic import Field, model_validator

from core.errors import InputError
from core.loading import Strict
from hwmodels.cluster import Cluster

StateKind = Literal["parameters", "gradients", "optimizer"]
LevelName = Literal["die", "device", "node", "domain", "world"]
ORDER: tuple[LevelName, ...] = ("device", "die", "node", "domain", "world")
"""Levels from the narrowest to the widest."""


class ShardLevels(Strict):
    """The level whose ranks share one copy of each class of state; what is left out follows ``zero``."""

    parameters: LevelName | None = Field(None, description="level over which parameters are sharded")
    gradients: LevelName | None = Field(None, description="level over which gradients are sharded")
    optimizer: LevelName | None = Field(None, description="level over which the optimizer's state is sharded")
    copy_parameters: LevelName | None = Field(
        None,
        description="level whose ranks share a further copy of the parameters, which backward passes gather; "
        "it is filled in every forward pass",
    )

    @model_validator(mode="after")
    def _nested(self) -> "ShardLevels":
        widths = [ORDER.index(level) if level else len(ORDER) - 1 for level in self._by_kind]
        if widths != sorted(widths):
            raise ValueError(
                "levels must widen from parameters to gradients to the optimizer's state, found "
                + ", ".join(str(level or "world") for level in self._by_kind)
            )
        return self

    @property
    def _by_kind(self) -> tuple[LevelName | None, ...]:
        return self.parameters, self.gradients, self.optimizer

    def of(self, kind: StateKind) -> LevelName | None:
        """The level of a class of state; None: all ranks that share it, or the plan's shard group."""
        return getattr(self, kind)


def level_devices(cluster: Cluster, level: LevelName) -> int:
    """Devices of one block of a level; 0 for the world.

    Raises:
        InputError: the cluster lacks the level.
    """
    inner = [each.devices for each in cluster.levels if each.devices < cluster.devices_per_node]
    if level == "die" and not inner:
        there = [name for name in ORDER if name != "die"]
        raise InputError(
            f"{cluster.name} has no level of dies inside its nodes; its levels are {', '.join(there)}"
        )
    sizes = {
        "device": 1,
        "die": inner[0] if inner else 1,
        "node": cluster.devices_per_node,
        "domain": cluster.domain,
        "world": 0,
    }
    return sizes[level]
