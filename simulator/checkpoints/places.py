"""Places where checkpoints are kept."""

from __future__ import annotations

from typing import Literal, get_args

StoragePlace = Literal["host", "peers", "ssd", "remote"]
"""Memory of the own host, memory of other hosts, SSDs of the own node, the shared file system."""

PLACES: tuple[StoragePlace, ...] = get_args(StoragePlace)
