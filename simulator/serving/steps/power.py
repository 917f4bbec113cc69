"""Power of a replica during a step: idle, busy, compute and memory power of its devices.

Every device draws idle power, a share for being busy, and shares that follow the use of its matrix units
and of its memory bandwidth, up to its limit. At a lower clock the share of the matrix units falls by f V^2
(`hwmodels.clocks`), and so does a part of the other two; the rest belongs to the memory and to leakage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodels.clocks import dynamic_power
from hwmodels.kernels.chip import peak_dtype
from simulator.ops.counts import expert_parameters, matmul_flops_per_token
from simulator.serving.steps.all_reduce import all_reduce_seconds
from simulator.serving.steps.memory import dense_weight_bytes
from simulator.serving.steps.price import StepPrice

Array = NDArray[np.float64]

CLOCKED = 0.5
"""Part of the power of busy devices, matrix units aside, that follows the clock of the multiprocessors.

Decodes at clocks of 345 to 1,920 MHz on H200 (three sweeps of Markliu225/powerchar, data_h200): 0.61, 0.44
and 0.57 of the power above idle at the full clock. On an RTX GPU, decodes at the lowest clock take 42 % less
energy than at the highest (Maliakel et al., arXiv:2501.08219); on A100, 1.1 GHz for 1.41 takes up to 20 % off
the peak power of inference (Patel et al., ASPLOS 2024)."""

SMALL_BATCH = 64
"""Tokens of the all-reduce whose time counts as waiting, in every step."""


@dataclass(frozen=True)
class PowerModel:
    """Power of one kind of replica."""

    devices: int
    idle_w: float
    limit_w: float
    host_w: float
    """The replica's share of host power, W."""
    dense_bytes: float
    """Weights that every step reads, over all devices."""
    expert_bytes: float
    """Weights of all routed experts, B."""
    experts: int
    top_k: int
    kv_bytes: float
    """KV of one token over all layers, B."""
    flops_a_token: float
    bandwidth: float
    peak: float
    waits_s: float
    """Time of a step in which devices wait for the host or, at small messages, for each other."""
    sequence_waits_s: float
    """Further waiting time per decoding sequence, s."""
    shares: tuple[float, float, float]
    dynamic: float = 1.0
    """Dynamic power of logic at the clock in use over that at the highest clock."""
    cap_w: float = np.inf
    """Power limit set for one device."""

    @classmethod
    def of(cls, price: StepPrice) -> PowerModel:
        """Figures of a replica."""
        model, device, pool = price.model, price.cluster.device, price.pool
        moe = model.moe
        routed = model.moe_layers * moe.experts * expert_parameters(model) if moe else 0
        # The output layer is counted in the dense format, as its share of a step's reads is small.
        dense = dense_weight_bytes(price) + model.output_parameters * price.weights.dense_bytes
        peaks = device.peak_flops
        peak = peaks.get("bf16") or peaks.get("fp16") or max(peaks.values())
        if peak_dtype(price.weights.experts) in ("fp8", "mxfp8") and "fp8" in peaks:
            peak = peaks["fp8"]
        if price.weights.experts == "nvfp4" and "nvfp4" in peaks:
            peak = peaks["nvfp4"]
        kv = 1.0 if pool.kv == "fp8" else 2.0
        idle = price.engine.idle_around.value
        message = np.asarray(SMALL_BATCH * 2.0 * model.hidden)
        star = pool.all_reduce == "star"
        reduce = all_reduce_seconds(price.cluster, pool.tensor, message, price.engine, star)
        reduces = model.layers * price.reduces_a_layer * float(reduce)
        shares = device.generation.power_shares
        return cls(
            devices=pool.devices,
            idle_w=device.idle_watts,
            limit_w=device.tdp_watts,
            host_w=price.cluster.host_watts * pool.devices / price.cluster.devices_per_node,
            dense_bytes=dense * pool.data,
            expert_bytes=routed * price.weights.expert_bytes,
            experts=moe.experts if moe else 1,
            top_k=moe.top_k if moe else 1,
            kv_bytes=model.cached_layers * model.kv_cache_width * kv,
            # Prompts decide: decodes wait for memory.
            flops_a_token=float(matmul_flops_per_token(model.encoder or model)),
            bandwidth=device.memory_bandwidth * pool.devices,
            peak=peak * pool.devices,
            waits_s=price.engine.step_s.value + idle * price.gaps + reduces,
            sequence_waits_s=idle * price.times.sequence_s / pool.data,
            shares=(shares[0], shares[1], shares[2]),
            dynamic=float(dynamic_power(device.clock_share)),
        )

    def watts(
        self,
        tokens: ArrayLike,
        decodes: ArrayLike,
        kv_tokens: ArrayLike,
        seconds: ArrayLike,
        hosts: bool = True,
    ) -> Array:
        """Mean power during steps.

        Args:
            tokens: query tokens of a step over the replica.
            decodes: number of decoding sequences.
            kv_tokens: sum of KV tokens over the decodes.
            seconds: step time, s.
            hosts: whether to include the replica's share of host power.
        """
        tokens, seconds = np.asarray(tokens, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
        hit = 1.0 - (1.0 - self.top_k / self.experts) ** tokens
        read = self.dense_bytes + self.expert_bytes * hit + self.kv_bytes * np.asarray(kv_tokens)
        memory = np.minimum(read / (self.bandwidth * seconds), 1.0)
        compute = np.minimum(self.flops_a_token * tokens / (self.peak * seconds), 1.0)
        waits = self.waits_s + self.sequence_waits_s * np.asarray(decodes)
        busy = np.maximum(1.0 - waits / seconds, 0.0)
        running, reading, computing = self.shares
        other = running * busy + reading * memory
        if self.dynamic < 1.0:
            computing, other = self.dynamic * computing, other * (1.0 - CLOCKED * (1.0 - self.dynamic))
        share = other + computing * np.sqrt(compute * busy)
        device = self.idle_w + (self.limit_w - self.idle_w) * np.minimum(share, 1.0)
        return self.devices * np.minimum(device, self.cap_w) + (self.host_w if hosts else 0.0)
