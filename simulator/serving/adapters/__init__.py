"""Low-rank adapters: their popularity, memory, loading and cost in a step."""

from simulator.serving.adapters.arrays import adapted_table
from simulator.serving.adapters.base import AdapterKernel
from simulator.serving.adapters.popularity import AdapterDraws
from simulator.serving.adapters.steps import kernels, make_kernel, with_adapters
from simulator.serving.adapters.store import AdapterStore

__all__ = [
    "AdapterDraws",
    "AdapterKernel",
    "AdapterStore",
    "adapted_table",
    "kernels",
    "make_kernel",
    "with_adapters",
]
