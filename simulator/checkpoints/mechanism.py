"""What every mechanism states: what blocks training, when a save is safe, and where it is read from."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from core.durations import Span, seconds_of
from core.loading import Strict
from core.quantities import Bandwidth
from core.records import record
from simulator.checkpoints.places import StoragePlace

if TYPE_CHECKING:
    from simulator.checkpoints.rates import SaveRates
    from simulator.checkpoints.state import SavedState


STEPS = re.compile(r"([1-9][0-9]*) steps?")


def _every(value: object) -> object:
    if isinstance(value, str) and (value == "auto" or STEPS.fullmatch(value.strip())):
        return value.strip()
    seconds = seconds_of(value)
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0:
        return float(seconds)
    raise ValueError("a time above zero, a number of steps as in '100 steps', or auto")


Every = Annotated[float | str, BeforeValidator(_every)]
"""Time between saves: seconds, ``N steps``, or ``auto``."""


@record()
class StepWindow:
    """The training step that saves happen beside; arrays of shape (plans,).

    Attributes:
        step_s: seconds of a step.
        passes_s: seconds of its forward and backward passes, in which parameters do not change.
        idle_network_s: seconds of a step in which the network carries nothing.
    """

    step_s: np.ndarray
    passes_s: np.ndarray
    idle_network_s: np.ndarray


@record()
class Save:
    """One save of each plan; arrays of shape (plans,).

    Attributes:
        stall_s: training waits.
        safe_s: from the start of the save until it is safe, by place.
        load_s: reading it back, by place.
        least_period_s: shortest time between two saves.
        host_bytes: host memory of a node that saves occupy.
        written_bytes: bytes written by the whole job, by place.
    """

    stall_s: np.ndarray
    safe_s: dict[StoragePlace, np.ndarray]
    load_s: dict[StoragePlace, np.ndarray]
    least_period_s: np.ndarray
    host_bytes: np.ndarray
    written_bytes: dict[StoragePlace, np.ndarray]


class StoredAt(Strict):
    """A place, and how often a save goes on to it."""

    place: StoragePlace
    every: Span | None = Field(None, description="time between saves that go there; default: every save")


class Mechanism(Strict):
    """Base of mechanisms."""

    HELP: ClassVar[str] = ""
    PLACES: ClassVar[tuple[StoragePlace, ...]] = ("remote",)
    """Default places."""

    every: Every = Field("auto", description="time between saves: `auto`, `20 min`, or `100 steps`")
    places: list[StoredAt] = Field(default_factory=list, description="where saves go, nearest first")
    writers: Literal["one", "all"] = Field(
        "all", description="whether one or all of the ranks with equal state write"
    )
    writer_bytes_s: Bandwidth | None = Field(
        None, description="rate of one writing process, where serialising is slower than the place"
    )
    blocking: Span | None = Field(None, description="time that training waits, in place of the predicted one")
    survives: Annotated[int, Field(ge=0, le=2**20)] = Field(
        1, description="nodes that peers' memory survives; larger losses need another place"
    )

    @model_validator(mode="before")
    @classmethod
    def _places_by_name(cls, value: object) -> object:
        if isinstance(value, dict) and isinstance(value.get("places"), list):
            named = [{"place": each} if isinstance(each, str) else each for each in value["places"]]
            return {**value, "places": named}
        return value

    @model_validator(mode="after")
    def _different_places(self) -> Mechanism:
        names = [stored.place for stored in self.saved_at]
        if len({*names}) < len(names):
            raise ValueError(f"places: must differ, found {names}")
        return self

    @property
    def saved_at(self) -> list[StoredAt]:
        """Where saves go, by default as the mechanism does."""
        return self.places or [StoredAt(place=place, every=None) for place in self.PLACES]

    def period(self, step_s: float) -> float | None:
        """Stated seconds of work between saves; None for ``auto``."""
        if self.every == "auto":
            return None
        if isinstance(self.every, str):
            return int(self.every.split()[0]) * step_s
        return self.every

    def lost_nodes(self, place: StoragePlace) -> float:
        """Nodes whose loss a save in this place survives."""
        return {"host": 0.0, "ssd": 0.0, "peers": float(self.survives), "remote": np.inf}[place]

    @abstractmethod
    def save(self, state: SavedState, rates: SaveRates, window: StepWindow) -> Save:
        """One save of each plan."""

    def copy_s(self, state: SavedState, rates: SaveRates) -> np.ndarray:
        """Seconds to copy what a node writes from its devices to its host, shape (plans,)."""
        return self.node_bytes(state) / rates.copy

    def node_bytes(self, state: SavedState) -> np.ndarray:
        """Bytes that the fullest node writes, shape (plans,)."""
        return state.node if self.writers == "one" else state.spread_node

    def write_s(self, place: StoragePlace, state: SavedState, rates: SaveRates) -> np.ndarray:
        """Seconds of a save's way from host memory to a place: the slowest of its streams, shape (plans,)."""
        node, nothing = self.node_bytes(state), np.zeros_like(state.total)
        if place == "host":
            return nothing
        if place == "peers":
            return node / rates.nic
        serial = nothing
        if self.writer_bytes_s is not None:
            serial = (state.writer if self.writers == "one" else state.spread_device) / self.writer_bytes_s
        if place == "ssd":
            return (
                np.maximum(node / rates.ssd_write, serial) if rates.ssd_write else np.full_like(node, np.inf)
            )
        return np.maximum.reduce([node / rates.client_write, state.total / rates.write, serial])

    def loads(self, state: SavedState, rates: SaveRates) -> dict[StoragePlace, np.ndarray]:
        """Time to read a save back, by place, with the copy to the devices beside it."""
        node = state.all_devices / rates.nodes
        up = node / rates.copy
        times = {
            "host": up,
            "peers": np.maximum(state.device * 8 / rates.nic, up),
            "ssd": np.maximum(node / rates.ssd_read, up) if rates.ssd_read else np.full_like(up, np.inf),
            "remote": np.maximum.reduce([node / rates.client_read, state.all_devices / rates.read, up]),
        }
        return {stored.place: times[stored.place] for stored in self.saved_at}  # type: ignore[index]

    def save_after(self, state: SavedState, rates: SaveRates, stall: np.ndarray, copied: np.ndarray) -> Save:
        """A save that stalls training for ``stall`` and is in host memory ``copied`` seconds after its start.

        Later places are written one after the other; a save that is still being written delays the next.
        """
        if self.blocking is not None:
            stall = np.full_like(stall, self.blocking)
            copied = np.maximum(copied, stall)
        safe: dict[StoragePlace, np.ndarray] = {}
        at = copied
        least = np.maximum(stall, copied)
        for stored in self.saved_at:
            took = self.write_s(stored.place, state, rates)
            at = at + took
            safe[stored.place] = at
            if stored.every is None:
                least = np.maximum(least, took)
        buffered = any(stored.place not in ("host", "peers") for stored in self.saved_at)
        in_host = sum(stored.place in ("host", "peers") for stored in self.saved_at)
        memory = self.node_bytes(state) * np.maximum(in_host, int(buffered))
        return Save(
            stall_s=stall,
            safe_s=safe,
            load_s=self.loads(state, rates),
            least_period_s=least,
            host_bytes=memory,
            written_bytes={stored.place: state.total for stored in self.saved_at},
        )
