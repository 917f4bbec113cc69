"""Step times of a replica whose layers are read in every step.

A step computes layer by layer while the next layers of the window are read, so it takes the longer of both;
without prefetch their sum. DeepSpeed Inference (arXiv 2207.00032), TPI-LLM (arXiv 2410.00531).

With processors that compute too, each product is split so that the part read over the host's link and the
part on its processors end together: HeteGen (arXiv 2403.01164).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

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
    on_node = min(devices, cluster.devices_per_node)
    read = stream.read * weight_bytes * on_node
    if stream.from_ == "host":
        return read / cluster.rates.copies(on_node)
    return read / read_rate(cluster, cluster.devices_per_node, "nvme")


def host_seconds(stream: WeightStream, devices: int, weight_bytes: float) -> tuple[float, float]:
    """Seconds in which the host's processors read the streamed layers once, and compute them for a token.

    Args:
        stream: where they are, and the processors' rates.
        devices: of the replica, whose layers the processors share.
        weight_bytes: all weights of one device; in 16 bits each byte is a FLOP of a token.
    """
    if not stream.cpu_bytes_s or stream.from_ != "host":
        return inf, 0.0
    read = stream.read * weight_bytes * devices
    return read / stream.cpu_bytes_s, read / stream.cpu_flops


class StreamedSteps:
    """`StepTimes` that read layers.

    Args:
        target: step times with all weights in device memory.
        read_s: seconds to read the streamed layers once.
        prefetch: they are read beside the computation.
        cpu_s: seconds in which the host's processors read those layers once.
        cpu_token_s: seconds in which they compute those layers for a token.
    """

    def __init__(
        self, target: StepTimes, read_s: float, prefetch: bool, cpu_s: float = inf, cpu_token_s: float = 0.0
    ) -> None:
        self.target, self.read_s, self.prefetch, self.stages = target, read_s, prefetch, target.stages
        self._cpu_s, self._token_s = cpu_s, cpu_token_s

    def waits(self, tokens: int) -> float:
        """Seconds to read the streamed layers, or to compute them on the host, in a step of these tokens."""
        if self._cpu_s == inf or not self.read_s:
            return self.read_s
        return 1.0 / (1.0 / self.read_s + 1.0 / max(self._cpu_s, tokens * self._token_s))

    def _with(self, seconds: float, tokens: int) -> float:
        if not seconds:
            return seconds
        read_s = self.waits(tokens)
        return max(seconds, read_s) if self.prefetch else seconds + read_s

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        tokens = decodes * queries + sum(chunk[0] for chunk in prefills)
        return self._with(self.target.step(prefills, decodes, kv_tokens, queries), tokens)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; up to the step from which computation takes longer than reading."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        read_s = self.waits(decodes * queries)
        if not self.prefetch or first_s >= read_s:
            return self._with(first_s, decodes * queries), growth_s, steps
        if growth_s > 0:
            steps = min(steps, max(int((read_s - first_s) / growth_s), 1))
        return read_s, 0.0, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`."""
        tokens = sum(batch.decodes * queries + sum(chunk[0] for chunk in batch.prefills) for batch in ranks)
        return self._with(self.target.lockstep(ranks, queries), tokens)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the same work in the step's own time."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and the wait for layers."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {**parts, "layers read": self.step(prefills, decodes, kv_tokens) - sum(parts.values())}
