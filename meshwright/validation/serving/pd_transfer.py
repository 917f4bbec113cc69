"""Transfers of a prompt's KV between prefill and decode servers (`pd_transfer.csv`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hwmodels.loading import read_mapping
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase
from meshwright.validation.serving.names import find_model

FILE = Path(__file__).with_name("pd_transfer.yaml")
NEEDS = ("prefill_tp", "decode_tp", "kv_mb", "transfer_ms")
MEASURED = ("transfer_ms",)
VALUE_BYTES = 2.0
"""Of a value of the KV cache."""


@dataclass(frozen=True)
class KvTransfer:
    """The configuration of one row."""

    family: str
    tokens: int
    token_bytes: float
    """Of all layers and ranks: ranks beyond the key-value heads hold and send copies."""
    node_bytes_s: float
    """Rate of a node's NICs as the row states it, B/s."""


@cache
def _facts() -> dict[str, Any]:
    return read_mapping(FILE)


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row states no rate of its network, or the engine is not known.
    """
    family = row.text("engine").split(" ")[0].lower()
    if family not in _facts()["transfer_s"]:
        raise SkippedRow(f"engine {row.text('engine')!r} is not known")
    rate = re.search(r"([\d.]+) GB/s", row.text("network"))
    if rate is None:
        raise SkippedRow("rate of the network not stated")
    model = find_model(row.text("model"))
    ranks = row.count("prefill_tp")
    bytes_ = VALUE_BYTES * model.cached_layers * model.kv_cache_width * max(ranks / model.kv_heads, 1.0)
    question = KvTransfer(family, int(row.need("prompt_tokens")), bytes_, float(rate[1]) * 1e9)
    name, measured = row.text("id"), row.measured(*MEASURED)
    return ServingCase(name, file, family, row.text("gpu"), measured, False, "", question)


def predict(questions: Sequence[KvTransfer]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    return [_one(question) for question in questions]


def _one(question: KvTransfer) -> dict[str, float]:
    facts = _facts()
    rate = question.node_bytes_s * facts["efficiency"]["value"]
    fixed = facts["transfer_s"][question.family]["value"]
    bytes_ = question.tokens * question.token_bytes
    return {"transfer_ms": 1e3 * (fixed + bytes_ / rate)}


def group_key(question: KvTransfer) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return (question.family,)
