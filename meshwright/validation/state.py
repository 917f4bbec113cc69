"""State fields of a published row: what its words say of offloading and of adapters."""

from __future__ import annotations

import re
from typing import Any

from meshwright.validation.rows import PublishedRow, SkippedRow, conventions, matches
from simulator.models import Model
from simulator.state.adapter import MULTIPLIED

LORA = r"\bQ?LoRA\b"
WIDE_BASE = r"prime-rl"
"""Frameworks that keep frozen parameters in 32 bits and gather them in 16 (prime-rl, ModelConfig:
optimization_dtype float32)."""
NARROW_BASE = r"frozen (weights|parameters) in (the low precision|fp8|mxfp8|nvfp4)"
"""Words of rows whose frozen parameters lie in the number format of the products."""
CODED_BASE = r"\b(NF4|int8) base"
"""Words of rows whose frozen parameters are coded."""
NONE = ("none", "no", "off", "false", "0")


def offloaded(row: PublishedRow) -> dict[str, Any]:
    """The plan fields of what a row keeps off the device.

    Raises:
        SkippedRow: words that no field expresses.
    """
    words = row.text("offload", "none").lower()
    if words in NONE:
        return {}
    ratio = re.search(r"ratio ([0-9.]+)|([0-9]+) %", words)
    share = 1.0
    if ratio:
        share = float(ratio[1].rstrip(".")) if ratio[1] else float(ratio[2]) / 100
    elif "ratio in" in words:
        raise SkippedRow(f"offload ({words}): the ratio is not stated")
    place: dict[str, Any] = {}
    if re.search("activation", words):
        place["activations"] = {"host": 1.0 if "optimizer" in words else share}
    if re.search("optimizer", words):
        place["optimizer"] = {"host": share}
    if re.search("parameters to the host|and parameters", words):
        place["parameters"] = {"host": 1.0}
    if not place:
        raise SkippedRow(f"offload ({words}) is not modelled")
    update: dict[str, Any] | None = None
    if "optimizer" in place:
        # Megatron Core's hybrid optimizer leaves the 32-bit weights on the device.
        framework = row.text("framework").lower()
        hybrid = "megatron" in framework
        if "deepspeed" in framework or "accelerate" in words:
            # Gradients go to the optimizer's host buffers, and kernels wait (DeepSpeed, stage3.py).
            place["gradients"] = {"host": 1.0, "prefetch": 0}
        update = {"on": "host", "pipelined": "overlapped" in words, "master_on_device": hybrid}
    return {"place": place} | ({"update": update} if update else {})


def adapters(row: PublishedRow, model: Model, precision: str) -> dict[str, Any]:
    """The workload field of a row about low-rank fine-tuning: as stated, or the framework's defaults."""
    if not re.search(LORA, row.text("source")):
        return {}
    notes = row.text("notes")
    rank = re.search(r"LoRA rank (\d+)", notes)
    if not rank:
        row.assume("rank of the adapters")
    usual = next((rule for rule in conventions()["adapters"] if matches(row, rule["where"])), {})
    every = ["attention", *(["mlp"] if model.feed_forward else []), *(["experts"] if model.moe else [])]
    named = re.search(r"LoRA[^;,.]* on (attention|mlp|experts|query and value)\b", notes)
    targets = (
        [named[1].replace("query and value", "query_key_value")] if named else usual.get("targets", every)
    )
    base = "fp32" if re.search(WIDE_BASE, row.text("framework")) else "bf16"
    if precision in MULTIPLIED and re.search(NARROW_BASE, notes):
        base = precision
    if coded := re.search(CODED_BASE, notes, re.IGNORECASE):
        base = coded[1].lower()
    ranks = int(rank[1]) if rank else usual.get("rank", 16)
    drops = usual.get("dropout", False)
    return {"adapter": {"rank": ranks, "targets": targets, "base": base, "dropout": drops}}
