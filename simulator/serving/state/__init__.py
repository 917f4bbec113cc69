"""State with a place: links that its moves share, and stores that hold it."""

from simulator.serving.state.lanes import Lanes
from simulator.serving.state.links import SharedFlow, SharedLane, SharedLinks
from simulator.serving.state.route import Route
from simulator.serving.state.stores import KvTiers, PlacedStore

__all__ = ["KvTiers", "Lanes", "PlacedStore", "Route", "SharedFlow", "SharedLane", "SharedLinks"]
