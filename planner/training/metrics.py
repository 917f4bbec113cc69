"""Throughput, utilisation, money and energy from step times, over arrays of plans.

Model FLOPs follow Megatron-LM (Narayanan et al. 2021, appendix): every product with weights, including the
output layer, and attention over the full square of the sequence, causal or not; the backward pass counts
twice, of frozen products beside adapters once. Hardware FLOPs add recomputation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from core.records import record
from simulator.layout.tower import tower_flops
from simulator.ops.counts import attention_flops_per_token, flops_per_token
from simulator.plan import Choice, Plans
from simulator.setting import Setting
from simulator.training import Step

COMMUNICATION = (
    *("tensor", "context", "expert", "output", "pipeline", "gradients", "parameters"),
    *("to host", "from host"),
)
"""Parts of a step that are exposed communication, or exposed copies to and from the host."""
WAITING = (*COMMUNICATION, "bubble", "launch", "variation")
"""Parts of a step in which a device runs no kernels of its own."""

SELECTIVE, FULL = (Choice["recompute"].index(word) for word in ("selective", "full"))


@record()
class Metrics:
    """Figures of merit of each plan, shape (plans,)."""

    step_time_s: np.ndarray
    tokens_per_s_per_device: np.ndarray
    model_flops_utilisation: np.ndarray
    """Model FLOP/s over the devices' dense peak in the workload's number format (MFU)."""
    causal_flops_utilisation: np.ndarray
    """MFU with the FLOPs of causal attention: a token attends only to earlier keys."""
    hardware_flops_utilisation: np.ndarray
    """Model FLOPs and recomputed ones over the peak (HFU)."""
    tokens_per_day: np.ndarray
    usd_per_million_tokens: np.ndarray
    """Cost at the devices' list price per hour."""
    kwh_per_million_tokens: np.ndarray
    """Devices draw their limit while kernels run and idle power otherwise; hosts draw constant power."""
    bubble_share: np.ndarray
    exposed_communication_share: np.ndarray

    @classmethod
    def of(cls, setting: Setting, plans: Plans, step: Step) -> Metrics:
        """Compute the figures of plans that occupy all of the cluster's devices."""
        cluster, training = setting.cluster, setting.training
        peak = cluster.device.peak(training.precision) * cluster.devices
        rate = training.tokens / step.time
        model, again = step_flops_per_token(setting, plans)
        causal = _computed(setting, forward_flops(setting, causal=True))
        idle, full = cluster.power_watts(0.0), cluster.power_watts(1.0)
        watts = idle + (full - idle) * (1 - np.minimum(step.share(*_present(step, WAITING)), 1.0))
        return cls(
            step_time_s=step.time,
            tokens_per_s_per_device=rate / cluster.devices,
            model_flops_utilisation=rate * model / peak,
            causal_flops_utilisation=rate * causal / peak,
            hardware_flops_utilisation=rate * (model + again) / peak,
            tokens_per_day=rate * 86400,
            usd_per_million_tokens=cluster.price_per_hour_usd / 3600 / rate * 1e6,
            kwh_per_million_tokens=watts / rate * 1e6 / 3.6e6,
            bubble_share=step.share("bubble"),
            exposed_communication_share=step.share(*_present(step, COMMUNICATION)),
        )


def utilisation(setting: Setting, step_s: float, causal: bool = False) -> float:
    """MFU, or causal MFU, of a step of some length."""
    training = setting.training
    flops = forward_flops(setting, causal)
    peak = setting.cluster.device.peak(training.precision) * setting.cluster.devices
    return _computed(setting, flops) * training.tokens / step_s / peak


def forward_flops(setting: Setting, causal: bool = False) -> float:
    """Forward model FLOPs of a token of a sequence, those of its encoder with it.

    Args:
        setting: of the step.
        causal: count only the keys that a token may see.
    """
    source = setting.training.source if setting.model.encoder else None
    attended, looks_back = setting.training.attended, causal and setting.causal
    return float(flops_per_token(setting.model, attended, looks_back, source))


def _computed(setting: Setting, forward: float) -> float:
    """FLOPs of a token forward and backward: frozen products beside adapters have no weight gradients.

    Products of the adapters themselves, below 1 % of the others, are not counted.

    Args:
        setting: of the step.
        forward: FLOPs of a token forward.
    """
    if setting.training.adapter is None:
        return 3 * forward
    length = setting.training.attended
    square = float(flops_per_token(setting.model, length))
    return 3 * forward - (square - float(attention_flops_per_token(setting.model, length)))


def step_flops_per_token(setting: Setting, plans: Plans) -> tuple[float, np.ndarray]:
    """FLOPs of one token in a step: the model's, and the recomputed ones of each plan, shape (plans,)."""
    model, length = setting.model, setting.training.attended
    forward = forward_flops(setting)
    attention = float(attention_flops_per_token(model, length))
    layers = forward - model.output_flops
    return _computed(setting, forward) + tower_flops(setting) / setting.training.seq_len, np.select(
        [plans.recompute == FULL, plans.recompute == SELECTIVE], [layers, attention], 0.0
    )


def _present(step: Step, names: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a step that a model has: dense models have no expert communication."""
    return tuple(name for name in names if name in step.seconds)


OBJECTIVES: Mapping[str, str] = MappingProxyType(
    {"time": "step_time_s", "cost": "usd_per_million_tokens", "energy": "kwh_per_million_tokens"}
)
"""The objectives of a search, and the figure that measures each."""
