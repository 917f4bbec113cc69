"""Seconds of ops: one array call per kernel class.

>>> from hwmodels.cluster import clusters
>>> from simulator.models import models
>>> from simulator.ops import SERVING, Batch, Rank, Shard, layer
>>> cluster = clusters.get("dgx-h100").resized(8)
>>> batch = Batch.prefill(1, 512, 2048) + Batch.decode(64, 1500)
>>> ops = layer(Rank(models.get("llama3-8b"), batch, Shard(tensor=2), how=SERVING))
>>> prices = Prices(cluster.device.kernels.using("vllm"), cluster, quantises=True)
>>> seconds = price(ops, prices)
>>> for op, time in list(zip(ops, seconds))[1:4]:
...     print(f"{op.name:<16} {1e6 * float(time):5.1f} us")
query_key_value   21.3 us
rope               3.3 us
append             1.7 us
"""

from simulator.pricing.price_list import NO_TIME, price
from simulator.pricing.prices import Prices

__all__ = ["NO_TIME", "Prices", "price"]
