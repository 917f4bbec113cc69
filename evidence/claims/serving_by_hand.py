"""Figures of serving that papers reckon by hand, from FLOPs, bytes and data sheets."""

from __future__ import annotations

from collections.abc import Callable

from core.errors import InputError
from simulator.ops.counts import flops_per_token, model_parameters
from simulator.serving.setting import ServingSetting

BATCHES = 64
"""Batches of which the fastest within a target counts."""


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


def _decode_rate(setting: ServingSetting) -> float:
    """Tokens a second of a decoding device, those for attention among them: the most within the TPOT target
    of equal requests, whose KV all fits. Prefill devices do not count."""
    pools = {each.name: each for each in setting.pools}
    decode, target = pools["decode"], setting.serving.slo.tpot
    if target is None or setting.serving.output is None:
        raise InputError("a claim on decodes needs output lengths and a target", f"{setting.where}: workload")
    tokens = _prompt(setting), float(setting.serving.output.mean())
    kv_sequences = decode.costs.kv_blocks * decode.options.block_tokens // sum(tokens)
    sequences = int(min(kv_sequences, decode.options.max_sequences))
    keys = tokens[0] + 0.5 * tokens[1]
    rates = [0.0]
    for part in range(1, BATCHES + 1):
        batch = max(sequences * part // BATCHES, 1)
        seconds = decode.costs.steps.step((), batch, int(batch * keys))
        if seconds <= target:
            rates.append(batch / seconds)
    return max(rates) / (setting.gpus - pools["prefill"].pool.devices)


BY_HAND: dict[str, Callable[[ServingSetting], float]] = {
    "peak_prefill": _peak_prefill,
    "peak_token": _peak_token,
    "products": _products,
    "kv_gb": _kv_gb,
    "users": _users,
    "decode_rate": _decode_rate,
}
