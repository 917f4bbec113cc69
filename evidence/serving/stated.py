"""What rows state of a server's options and of its client: limits, memory, speculation, prompts, lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evidence.serving.case import MeasuredRow
from hwmodels.device import Device
from meshwright.validation.rows import SkippedRow
from simulator.lengths.lognormal import median_of_mean
from simulator.serving.engines import Engine

SIGMA = 1.0
"""Spread of log-normal lengths of conversations (ShareGPT), assumed. Rows state the mean after the cut."""
LONGEST = 1024
"""Tokens of the longest prompt or answer of a conversation: vLLM's benchmark leaves out prompts above it, and
conversations above twice as many (vllm/benchmarks/datasets.py, is_valid_sequence)."""
DRAFTS = re.compile(r"num_speculative_tokens\W+(\d+)|--speculative-num-steps[ =](\d+)")
THROUGHPUT = re.compile(r"--performance-mode[ =]throughput")
"""vLLM's mode that doubles the default token budget and number of sequences (arg_utils.py,
``_set_default_max_num_seqs_and_batched_tokens_args``)."""
NO_PREFIXES = re.compile(r"--no-enable-prefix-caching|--disable-radix-cache")
METHOD = re.compile(r"method\W+(\w+)|--speculative-algorithm[ =](\w+)")
METHODS = {"eagle3": "eagle3", "mtp": "mtp", "nextn": "mtp", "ngram": "ngram", "eagle": "eagle"}
"""Kinds of speculation by the words of a command line in lower case; the first that it has counts."""
VERIFIED = re.compile(r"--speculative-num-draft-tokens[ =](\d+)")
HEADS = re.compile(r"heads: ([^;]*)")
"""Headings of the page above a row; they name the dataset where its column is blank."""


@dataclass(frozen=True)
class Stated:
    """Columns that a row may leave blank; 0 where it does."""

    max_sequences: int = 0
    token_budget: int = 0
    memory_share: float = 0.0
    requests: int = 0
    """Of the whole run."""
    limits_factor: int = 1
    """Limits of a step over the engine's defaults, where the row states none."""
    prefix_caching: bool | None = None
    """Whether equal prefixes are cached; None: as the engine does by default."""
    state_buffers: bool = False
    """Whether each sequence has buffers for states of linear layers (SGLang)."""
    longest: int = 0
    """Tokens of the longest request that the server takes."""
    varied: bool = False
    """Whether lengths are those of conversations."""
    speculation: tuple[tuple[str, Any], ...] = ()
    """Keys of a scenario; acceptance is the kind's."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of a deployment."""
        names = "max_sequences", "token_budget", "memory_share"
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def options_of(self, engine: Engine, device: Device) -> dict[str, Any]:
        """Options of a deployment, with limits that a mode of the server changes."""
        if self.limits_factor == 1:
            return self.options
        limits = {
            "max_sequences": self.limits_factor * engine.sequence_limit(device),
            "token_budget": self.limits_factor * engine.token_budget(device),
        }
        return {**limits, **self.options}


NOTHING = Stated()


def read_stated(row: MeasuredRow) -> Stated:
    """What a row states.

    Raises:
        SkippedRow: it has drafts of a method that it does not name.
    """
    arguments = row.text("server_args")
    speculation = _speculation(arguments)
    if row.text("spec") == "draft" and not speculation:
        raise SkippedRow("method of its drafts not stated")
    return Stated(
        prefix_caching=_caches(row.text("prefix_caching"), arguments),
        state_buffers="extra_buffer" in arguments,
        longest=int(row.number("max_model_len") or 0),
        max_sequences=int(row.number("max_num_seqs") or 0),
        token_budget=int(row.number("max_num_batched_tokens") or 0),
        memory_share=row.number("memory_share") or 0.0,
        requests=int(row.number("num_prompts") or 0),
        varied="sharegpt" in _dataset(row).lower(),
        limits_factor=2 if THROUGHPUT.search(arguments) else 1,
        speculation=tuple(speculation.items()),
    )


def _caches(column: str, arguments: str) -> bool | None:
    """Whether a server caches equal prefixes, by its row's column or its command line."""
    if column in ("on", "off"):
        return column == "on"
    return False if NO_PREFIXES.search(arguments) else None


def _dataset(row: MeasuredRow) -> str:
    """Name of a row's dataset, or the headings that a row without one stands under."""
    heads = HEADS.search(row.text("notes"))
    return row.text("dataset") or (heads[1] if heads else "")


def _speculation(arguments: str) -> dict[str, Any]:
    """Speculation by a server's command line."""
    drafts = DRAFTS.search(arguments)
    if drafts is None:
        return {}
    named = METHOD.search(arguments)
    words = (named[1] or named[2] if named else arguments).lower()
    kind = next((kind for word, kind in METHODS.items() if word in words), "mtp")
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
    if varied and mean < LONGEST:
        median = median_of_mean(mean, SIGMA, LONGEST)
        return {"kind": "lognormal", "median": median, "sigma": SIGMA, "most": LONGEST}
    nominal = max(round(mean / (0.5 + 0.5 * low)), 1)
    least = max(round(low * nominal), 1)
    return nominal if least == nominal else {"kind": "uniform", "low": least, "high": nominal}
