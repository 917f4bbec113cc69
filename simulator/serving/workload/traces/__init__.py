"""Readers of public request traces by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core.errors import named
from simulator.serving.workload.traces import (
    azure,
    bailian,
    benchmark,
    burstgpt,
    llmservingsim,
    mooncake,
    plain,
    sharegpt,
    splitwise,
    weka,
)
from simulator.serving.workload.traces.base import TraceFormat, TraceRow

formats: Mapping[str, TraceFormat] = MappingProxyType(
    {
        module.FORMAT.name: module.FORMAT
        for module in (
            azure,
            burstgpt,
            bailian,
            mooncake,
            llmservingsim,
            benchmark,
            sharegpt,
            splitwise,
            weka,
            plain,
        )
    }
)


def get_format(name: str, where: str = "") -> TraceFormat:
    """The trace format of that name.

    Raises:
        UnknownNameError: no such format (the nearest name is offered).
    """
    return named("trace format", name, formats, where)


__all__ = ["TraceFormat", "TraceRow", "formats", "get_format"]
