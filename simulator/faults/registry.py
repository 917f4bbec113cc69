"""Fault processes by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from simulator.faults.components import Components
from simulator.faults.correlated import Correlated
from simulator.faults.exponential import Exponential
from simulator.faults.replay import Replay
from simulator.faults.silent import SilentCorruption
from simulator.faults.weibull import Weibull

AnyProcess = Annotated[
    Exponential | Weibull | Components | Correlated | SilentCorruption | Replay, Field(discriminator="kind")
]

PROCESSES = MappingProxyType(
    {
        "exponential": Exponential,
        "weibull": Weibull,
        "components": Components,
        "correlated": Correlated,
        "silent": SilentCorruption,
        "replay": Replay,
    }
)
"""Fault processes: `kind` of a mapping, and the class that reads it."""
