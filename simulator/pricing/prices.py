"""Hardware and conditions under which ops are priced."""

from __future__ import annotations

from core.records import record
from hwmodels.cluster import Cluster
from hwmodels.kernels import KernelModel
from simulator.site import Site


@record()
class Prices:
    """Hardware and conditions under which ops are priced.

    Args:
        kernels: kernel times of the device: sustained or not, corrected or not, and of which library.
        cluster: cluster whose links carry collectives; None without collectives.
        cold: time of a product with operands in memory over time with operands in the cache.
        quantises: whether products cast their activations in the same call, as in their measured points.
        served: products are those of serving libraries, corrected by measured points, with casts fused into
            the kernel before.
        experts_as_dense: whether products of experts fill tiles as dense ones do, as at a training step's
            sizes; else they are priced by the grouped form.
        product_share: speed of dense and batched products over that of the calibrated library.
        site: learned factors of kernel classes and of the exchange with experts.
    """

    kernels: KernelModel
    cluster: Cluster | None = None
    cold: float = 1.0
    quantises: bool = False
    served: bool = False
    experts_as_dense: bool = False
    product_share: float = 1.0
    site: Site | None = None
