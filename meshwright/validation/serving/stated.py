"""What rows state of a server's options and of its client: limits, memory, speculation, prompts, lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.validation.serving.case import MeasuredRow

SIGMA = 1.0
"""Spread of log-normal lengths of conversations (ShareGPT); their mean is the row's (assumed)."""
LONGEST = 1024
"""Tokens of the longest prompt or answer of a conversation: vLLM's benchmark leaves out prompts above it, and
conversations above twice as many (vllm/benchmarks/datasets.py, is_valid_sequence)."""
DRAFTS = re.compile(r"num_speculative_tokens\W+(\d+)|--speculative-num-steps[ =](\d+)")
VERIFIED = re.compile(r"--speculative-num-draft-tokens[ =](\d+)")


@dataclass(frozen=True)
class Stated:
    """Columns that a row may leave blank; 0 where it does."""

    max_sequences: int = 0
    token_budget: int = 0
    memory_share: float = 0.0
    requests: int = 0
    """Of the whole run."""
    varied: bool = False
    """Whether lengths are those of conversations."""
    speculation: tuple[tuple[str, Any], ...] = ()
    """Keys of a scenario; acceptance is the kind's."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of a deployment."""
        names = "max_sequences", "token_budget", "memory_share"
        return {name: getattr(self, name) for name in names if getattr(self, name)}


NOTHING = Stated()


def read_stated(row: MeasuredRow) -> Stated:
    """What a row states."""
    return Stated(
        max_sequences=int(row.number("max_num_seqs") or 0),
        token_budget=int(row.number("max_num_batched_tokens") or 0),
        memory_share=row.number("memory_share") or 0.0,
        requests=int(row.number("num_prompts") or 0),
        varied="sharegpt" in row.text("dataset").lower(),
        speculation=tuple(_speculation(row.text("server_args")).items()),
    )


def _speculation(arguments: str) -> dict[str, Any]:
    """Speculation by a server's command line."""
    drafts = DRAFTS.search(arguments)
    if drafts is None:
        return {}
    kinds = {"EAGLE3": "eagle3", '"mtp"': "mtp", "ngram": "ngram", "EAGLE": "eagle"}
    kind = next((kind for word, kind in kinds.items() if word in arguments), "mtp")
    keys: dict[str, Any] = {"kind": kind, "tokens": int(drafts[1] or drafts[2])}
    if verified := VERIFIED.search(arguments):
        keys["verified"] = int(verified[1])
    return keys


def lengths(mean: float, low: float, varied: bool) -> int | Mapping[str, Any]:
    """Lengths of a scenario's requests.

    Args:
        mean: tokens.
        low: least over nominal length, which is the longest.
        varied: whether they are those of conversations.
    """
    if varied:
        median = mean / float(np.exp(0.5 * SIGMA**2))
        return {"kind": "lognormal", "median": median, "sigma": SIGMA, "most": LONGEST}
    nominal = max(round(mean / (0.5 + 0.5 * low)), 1)
    least = max(round(low * nominal), 1)
    return nominal if least == nominal else {"kind": "uniform", "low": least, "high": nominal}
