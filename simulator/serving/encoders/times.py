"""Seconds of a vision tower on the devices of a replica."""

from __future__ import annotations

from functools import cache

import numpy as np

from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.models.towers import Shape, Tower
from simulator.models.towers.pictures import WIDTH, Pictures
from simulator.ops.rank import Formats, Shard
from simulator.ops.tower import tower_ops, tower_parameters
from simulator.pricing import price
from simulator.serving.engines import Engine
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.price import StepPrice


class EncoderTimes:
    """Seconds of one forward pass of a tower over pictures of one shape.

    A pass takes no less than the launches of its layers: engines run towers without captured graphs (vLLM
    0.19, gpu_model_runner.py, _execute_mm_encoder), with as many kernels a layer as the language model. The
    host's time of each picture follows its kernels (`Engine.picture_s`).

    Args:
        tower: the tower.
        model: its language model.
        cluster: devices; a replica's ranks are the first.
        pool: degrees of the replica.
        engine: times around kernels, and their library.
    """

    def __init__(self, tower: Tower, model: Model, cluster: Cluster, pool: Pool, engine: Engine) -> None:
        self.tower = tower
        step = StepPrice(model, cluster, pool, engine)
        self._prices, self._tensor = step.prices, float(pool.tensor)
        # Measured on pictures; of a clip's host time nothing is known.
        self._picture_s = 0.0 if tower.hears else engine.picture_s.value
        # `picture_s` of engines that capture steps with prompts was measured with the launches in it.
        launches_s = 0.0 if engine.graphs_mixed.value else step.dense_times.eager_layer_s
        self._floor = tower.layers * launches_s * cluster.launch_slowdown
        wide = step.formats.core
        self._formats = Formats(linear=wide, core=wide)
        self.seconds = cache(self._seconds)
        """Seconds to encode a number of pictures of a shape together."""

    def requests_s(self, pictures: Pictures, requests: int = 1) -> float:
        """Seconds for the pictures of some requests together."""
        if not requests:
            return 0.0
        return sum(self.seconds(requests * count, shape) for count, shape in pictures.groups)

    def _seconds(self, pictures: int, shape: Shape) -> float:
        ops = tower_ops(self.tower, shape, float(pictures), Shard(tensor=self._tensor), self._formats)
        kernels = sum(float(np.sum(seconds)) for seconds in price(ops, self._prices))
        return max(kernels, self._floor) + self._picture_s * pictures


def tower_bytes(tower: Tower, tensor: int) -> float:
    """Bytes of a tower's weights on one device, in 16 bits, sharded over tensor-parallel ranks."""
    return WIDTH * tower_parameters(tower) / tensor
