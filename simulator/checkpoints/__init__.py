"""Checkpoint mechanisms, one a file, found by name in ``MECHANISMS``."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from simulator.checkpoints.asynchronous import Asynchronous
from simulator.checkpoints.incremental import Incremental
from simulator.checkpoints.lazy import Lazy
from simulator.checkpoints.mechanism import Mechanism, Save, StepWindow, StoredAt
from simulator.checkpoints.peers import Peers
from simulator.checkpoints.places import PLACES, StoragePlace
from simulator.checkpoints.synchronous import Synchronous
from simulator.checkpoints.universal import Universal

__all__ = [
    "MECHANISMS",
    "PLACES",
    "AnyMechanism",
    "Mechanism",
    "Save",
    "StepWindow",
    "StoragePlace",
    "StoredAt",
]

AnyMechanism = Annotated[
    Synchronous | Asynchronous | Lazy | Peers | Incremental | Universal, Field(discriminator="mechanism")
]

MECHANISMS = MappingProxyType(
    {
        "synchronous": Synchronous,
        "asynchronous": Asynchronous,
        "lazy": Lazy,
        "peers": Peers,
        "incremental": Incremental,
        "universal": Universal,
    }
)
"""Checkpoint mechanisms: `mechanism` of a scenario, and the class that reads it."""
