"""Figures of serving that papers reckon by hand, from FLOPs, bytes and data sheets."""

from __future__ import annotations

from collections.abc import Callable

from core.errors import InputError
from simulator.ops.counts import flops_per_token, model_parameters
from simulator.serving.setting import ServingSetting


def _products(setting: ServingSetting) -> float:
    """Tokens a second and GPU of products alone at their settled rate."""
    return setting.cluster.device.settled("bf16") / (2.0 * model_parameters(setting.model))


def _prompt(setting: ServingSetting) -> float:
    """Mean tokens of a prompt."""
    lengths = setting.serving.input
    if lengths is None:
        raise InputError("a claim on prompts needs their lengths", f"{setting.where}: workload.input")
    return float(lengths.mean())


def _kv_gb(setting: ServingSetting) -> float:
    """KV of a prompt, GB."""
    return _prompt(setting) * setting.pools[0].costs.kv_token_bytes / 1e9


def _users(setting: ServingSetting) -> float:
    """Prompts whose KV fits beside the weights of one device."""
    room = setting.cluster.device.memory_bytes - setting.pools[0].costs.weight_bytes
    return room / 1e9 / _kv_gb(setting)


def _peak_prefill(setting: ServingSetting) -> float:
    """Seconds of a prompt's FLOPs at the peak of one device."""
    tokens = _prompt(setting)
    flops = tokens * float(flops_per_token(setting.model, tokens, causal=True))
    return flops / setting.cluster.device.peak("bf16")


def _peak_token(setting: ServingSetting) -> float:
    """Milliseconds to read the weights and a prompt's KV at the bandwidth of one device."""
    read = setting.pools[0].costs.weight_bytes + 1e9 * _kv_gb(setting)
    return 1e3 * read / setting.cluster.device.memory_bandwidth


BY_HAND: dict[str, Callable[[ServingSetting], float]] = {
    "peak_prefill": _peak_prefill,
    "peak_token": _peak_token,
    "products": _products,
    "kv_gb": _kv_gb,
    "users": _users,
}
