"""Published offload systems, one file each."""

from simulator.offload.system import OffloadSystem, offload_systems

__all__ = ["OffloadSystem", "offload_systems"]
