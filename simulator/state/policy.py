"""All that a plan says of its state beside ``zero`` and ``shard_group``."""

from __future__ import annotations

from typing import NamedTuple

from simulator.state.levels import ShardLevels
from simulator.state.place import Tiers, Update
from simulator.state.sync import Sync
from simulator.state.wire import Wire


class StatePolicy(NamedTuple):
    """The state fields of a plan; None leaves the framework's default."""

    shard: ShardLevels | None = None
    wire: Wire | None = None
    place: Tiers | None = None
    update: Update | None = None
    sync: Sync | None = None


PLAIN = StatePolicy()
"""State on the device, in the framework's formats, exchanged in every step."""

POLICY_FIELDS = StatePolicy._fields
"""Plan fields that a policy holds."""
