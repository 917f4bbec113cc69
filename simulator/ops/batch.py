"""The batch of one pass through the model: shapes of tokens and of the context that they attend to.

A batch knows neither requests nor workloads. Training is one segment of whole sequences; a serving step is
prefill chunks over their context and decodes over their cached tokens.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.records import record

Array = NDArray[np.floating]
Phase = Literal["prefill", "decode"]


@record()
class Segment:
    """Sequences of one shape. Arrays broadcast to shape (cases,).

    Args:
        sequences: number of sequences.
        queries: new tokens per sequence.
        context: tokens that the last query attends to, including the new ones.
        phase: decode runs the kernel that reads one new token's context from the cache.
        causal: whether a query attends only to tokens up to its own.
    """

    sequences: ArrayLike
    queries: ArrayLike
    context: ArrayLike
    phase: Phase = "prefill"
    causal: bool = True

    @property
    def tokens(self) -> Array:
        """New tokens of all sequences, shape (cases,)."""
        return np.multiply(self.sequences, self.queries, dtype=np.float64)


@record()
class Batch:
    """Segments that run together.

    Args:
        segments: segments of the batch; a ragged batch has one per length.
        sampled: sequences whose last token passes the output layer, shape (cases,); None: every token does,
            as in training.
        encoded: tokens of the encoder's output, of all sequences, whose keys and values cross layers project;
            None: they are cached, and ``context`` counts them.
    """

    segments: tuple[Segment, ...]
    sampled: ArrayLike | None = None
    encoded: ArrayLike | None = None

    @classmethod
    def training(
        cls, micro_batch: ArrayLike, seq_len: ArrayLike, causal: bool = True, source: ArrayLike | None = None
    ) -> Batch:
        """Whole sequences of a micro batch; ``source`` tokens of each lie in the encoder's output."""
        encoded = None if source is None else np.multiply(micro_batch, source, dtype=np.float64)
        return cls((Segment(micro_batch, seq_len, seq_len, "prefill", causal),), encoded=encoded)

    @classmethod
    def decode(cls, sequences: ArrayLike, context: ArrayLike) -> Batch:
        """One new token per sequence over ``context`` tokens, including itself."""
        return cls((Segment(sequences, 1, context, "decode"),), sequences)

    @classmethod
    def prefill(
        cls,
        sequences: ArrayLike,
        queries: ArrayLike,
        context: ArrayLike | None = None,
        causal: bool = True,
    ) -> Batch:
        """Prompts or prompt chunks; the last token attends to ``context`` tokens, including itself."""
        seen = queries if context is None else context
        return cls((Segment(sequences, queries, seen, causal=causal),), sequences)

    def __add__(self, other: Batch) -> Batch:
        """Both batches in one pass, e.g. a prefill chunk beside decodes."""
        return Batch(self.segments + other.segments, np.add(self.logit_rows, other.logit_rows))

    @property
    def tokens(self) -> Array:
        """New tokens of all segments, shape (cases,)."""
        return sum((segment.tokens for segment in self.segments), np.zeros(()))

    @property
    def logit_rows(self) -> Array:
        """Tokens that pass the output layer, shape (cases,)."""
        return self.tokens if self.sampled is None else np.asarray(self.sampled, dtype=np.float64)
