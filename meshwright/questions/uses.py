"""Lengths and targets of a request by use: chat, code, agents, batch, embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from core.cache import read_shipped
from core.errors import UnknownNameError
from core.loading import Strict, build
from simulator.serving.engines import Figure

FILE = Path(__file__).with_name("uses.yaml")


class Use(Strict):
    """Defaults of one use, each with its source."""

    isl: Figure[int]
    osl: Figure[int]
    ttft: Figure[float]
    tpot: Figure[float] | None = None
    prefix: Figure[int] | None = None
    turns: Figure[int] | None = None
    """Calls of an agent from a message to its answer."""
    tool: Figure[float] | None = None
    """Mean seconds of tools between two of them."""


@cache
def uses() -> Mapping[str, Use]:
    """Uses by name."""
    return {name: build(Use, values, f"{FILE.name}: {name}") for name, values in read_shipped(FILE).items()}


def with_use(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a serving question with the defaults of its ``use`` where they state nothing.

    Raises:
        UnknownNameError: no such use.
    """
    name = values.get("use")
    if name is None:
        return dict(values)
    if name not in uses():
        raise UnknownNameError("use", name, uses(), "--use")
    filled = dict(values)
    if values.get("rate") is None and values.get("requests") is None:
        filled |= {key: figure.value for key in ("turns", "tool") if (figure := getattr(uses()[name], key))}
    lengths = values.get("requests") is None and values.get("isl") is None
    for key in ("isl", "osl", "ttft", "tpot", "prefix"):
        figure = getattr(uses()[name], key)
        if figure is None or values.get(key) is not None:
            continue
        if key in ("isl", "osl") and values.get("requests") is not None:
            continue
        if key == "prefix" and not lengths:
            continue
        filled[key] = figure.value
    return filled
