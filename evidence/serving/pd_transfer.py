"""Transfers of a prompt's KV between prefill and decode servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from core.loading import read_mapping
from evidence.serving.case import MeasuredRow, Question, ServingCase
from evidence.serving.collection import Collection
from evidence.serving.names import find_model
from meshwright.validation.rows import SkippedRow

FILE = Path(__file__).with_name("pd_transfer.yaml")
VALUE_BYTES = 2.0
"""Of a value of the KV cache."""


@dataclass(frozen=True)
class KvTransfer(Question):
    """The configuration of one row."""

    family: str
    tokens: int
    token_bytes: float
    """Of all layers and ranks: ranks beyond the key-value heads hold and send copies."""
    node_bytes_s: float
    """Rate of a node's NICs as the row states it, B/s."""

    @property
    def key(self) -> tuple[str]:  # type: ignore[override]
        """See `Question`."""
        return (self.family,)


@cache
def _facts() -> dict[str, Any]:
    return read_mapping(FILE)


def question(row: MeasuredRow, collection: Collection) -> KvTransfer:
    """The question of a row.

    Raises:
        SkippedRow: the row states no rate of its network, or the engine is not known.
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
    return KvTransfer(family, int(row.need("prompt_tokens")), bytes_, float(rate[1]) * 1e9)


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """The engine of a row."""
    return {"engine": case.question.family}


def predict(questions: Sequence[KvTransfer]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    facts = _facts()
    efficiency, transfer_s = facts["efficiency"]["value"], facts["transfer_s"]
    return [
        {
            "transfer_ms": 1e3
            * (
                transfer_s[row.family]["value"]
                + row.tokens * row.token_bytes / (row.node_bytes_s * efficiency)
            )
        }
        for row in questions
    ]
