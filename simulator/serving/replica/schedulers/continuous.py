"""Iteration-level batching: whole prompts join the running decodes."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.schedulers.chunked import Chunked


class Continuous(Chunked):
    """Each step runs all decodes and as many waiting prompts as slots, blocks and tokens allow.

    `Chunked` under the name of its ancestors; their presets set `chunked_prefill: false`.
    """

    name: ClassVar[str] = "continuous"
    rule: ClassVar[str] = "decodes and whole prompts in one step"
    source: ClassVar[str] = "Yu et al., Orca, OSDI 2022; TensorRT-LLM in-flight batching"
