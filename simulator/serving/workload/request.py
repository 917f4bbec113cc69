"""A request of a client."""

from __future__ import annotations

from math import inf
from typing import NamedTuple


class Request(NamedTuple):
    """A request of a client.

    ``prefix`` are ids of the prompt's leading spans of equal length: prompts that share their first ids
    share those tokens. ``program`` and ``turn`` place a request in a conversation or an agent's run.
    """

    serial: int
    arrival_s: float
    prompt: int
    output: int
    prefix: tuple[int, ...] = ()
    priority: int = 0
    program: int = -1
    turn: int = 0
    cached: int = 0
    """Prompt tokens known to be in the prefix cache, beside those that `prefix` finds."""
    adapter: int = -1
    """Number of its adapter; -1: none."""
    chunks: tuple[int, ...] = ()
    """Documents that stand in the prompt."""
    due_s: float = inf
    """Time at which its part of its program's deadline ends."""
