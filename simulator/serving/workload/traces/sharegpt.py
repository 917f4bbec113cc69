"""ShareGPT: conversations as text, from which benchmark clients take prompt and answer lengths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.errors import InputError, shown
from simulator.serving.workload.traces.base import TraceFormat, TraceRow, opened, parsed

CHARACTERS_PER_TOKEN = 4.0
"""English text in tokenizers of 32k to 128k entries: 3.5 to 4.5 (assumed; no tokenizer is run)."""
NO_TIME = float("nan")


def _read(path: Path) -> Iterator[TraceRow]:
    """The first two turns of each conversation, as vLLM's benchmark client takes them."""
    with opened(path) as file:
        talks = parsed(file.read(), str(path))
    if not isinstance(talks, list):
        raise InputError("a JSON list of conversations is needed", str(path))
    for index, talk in enumerate(talks):
        turns = talk.get("conversations") if isinstance(talk, dict) else None
        if not isinstance(turns, list):
            raise InputError(f"entry {index}: key 'conversations' is missing", str(path))
        if len(turns) >= 2:
            prompt, answer = (_tokens(turn, f"{path}: entry {index}") for turn in turns[:2])
            yield TraceRow(NO_TIME, prompt, answer)


def _tokens(turn: object, where: str) -> int:
    text = turn.get("value") if isinstance(turn, dict) else None
    if not isinstance(text, str):
        raise InputError(f"a turn needs key 'value' with text, found {shown(turn)}", where)
    return max(round(len(text) / CHARACTERS_PER_TOKEN), 1)


FORMAT = TraceFormat(
    "sharegpt",
    "conversations[].value (text; four characters are taken for a token)",
    "ShareGPT_V3_unfiltered_cleaned_split.json, as vLLM's `--dataset-name sharegpt` reads it",
    _read,
    timed=False,
)
