"""Steps of constant size: long prompts are split, short prompts combined."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.schedulers.chunked import Chunked


class ExactBudget(Chunked):
    """`Chunked` that fills a step to exactly the token budget while there are prompts.

    Prompts are always cut to fit, whatever `chunked_prefill` says.
    """

    name: ClassVar[str] = "exact-budget"
    rule: ClassVar[str] = "decodes, then prompts cut and composed to exactly the token budget"
    source: ClassVar[str] = "Holmes et al., DeepSpeed-FastGen (SplitFuse), arXiv 2401.08671"
    always_cuts: ClassVar[bool] = True
