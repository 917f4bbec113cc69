"""Step times of a replica whose layers are read in every step.

A step computes layer by layer while the next layers of the window are read, so it takes the longer of both;
without prefetch their sum. DeepSpeed Inference (arXiv 2207.00032), TPI-LLM (arXiv 2410.00531).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from hwmodels.cluster import Cluster
from simulator.serving.question.places import read_rate
from simulator.serving.question.stream import WeightStream
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, StepTimes, Stretch


def stream_seconds(stream: WeightStream, cluster: Cluster, devices: int, weight_bytes: float) -> float:
    """Seconds to read the streamed layers of a replica once.

    Args:
        stream: where they are, and how many.
        cluster: nodes of the replica.
        devices: of the replica.
        weight_bytes: all weights of one device.
    """
    read = stream.read * weight_bytes
    per_node = cluster.devices_per_node
    if stream.from_ == "host":
        behind = ceil(per_node / (cluster.full_node.pcie_roots or per_node))
        return min(behind, devices) * read / cluster.device.kernels.calibration.host_copy.bandwidth
    return read * min(devices, per_node) / read_rate(cluster, per_node, "nvme")


class StreamedSteps:
    """`StepTimes` that read layers.

    Args:
        target: step times with all weights in device memory.
        read_s: seconds to read the streamed layers once.
        prefetch: they are read beside the computation.
    """

    def __init__(self, target: StepTimes, read_s: float, prefetch: bool) -> None:
        self.target, self.read_s, self.prefetch, self.stages = target, read_s, prefetch, target.stages

    def _with(self, seconds: float) -> float:
        if not seconds:
            return seconds
        return max(seconds, self.read_s) if self.prefetch else seconds + self.read_s

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        return self._with(self.target.step(prefills, decodes, kv_tokens, queries))

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; up to the step from which computation takes longer than reading."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        if not self.prefetch or first_s >= self.read_s:
            return self._with(first_s), growth_s, steps
        if growth_s > 0:
            steps = min(steps, max(int((self.read_s - first_s) / growth_s), 1))
        return self.read_s, 0.0, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`."""
        return self._with(self.target.lockstep(ranks, queries))

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the same work in the step's own time."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and the wait for layers."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {**parts, "layers read": self.step(prefills, decodes, kv_tokens) - sum(parts.values())}
