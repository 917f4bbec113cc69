"""Times of attention over whole sequences and over caches, as methods of `KernelModel`."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from hwmodels.errors import UnknownNameError
from hwmodels.kernels import attention, attention_decode
from hwmodels.kernels.base import Array, Kernels, broadcast
from hwmodels.kernels.chip import chip

# Scores are computed again in the backward pass: five products for two (Dao 2023, FlashAttention-2).
BACKWARD_FLOPS = 2.5


class AttentionKernels(Kernels):
    """Attention of one device."""

    def attention(
        self,
        batch: ArrayLike,
        seq_q: ArrayLike,
        seq_kv: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        causal: bool = True,
        dtype: str = "bf16",
        direction: Literal["forward", "backward"] = "forward",
        v_head_dim: ArrayLike | None = None,
        appends: bool = False,
        kv_dtype: str | None = None,
    ) -> Array:
        """Return the time of fused attention.

        Args:
            batch: sequences.
            seq_q: query positions a sequence.
            seq_kv: key positions a sequence; with `causal` the last query sees all of them.
            heads: query heads.
            kv_heads: key-value heads.
            head_dim: of queries and keys.
            causal: whether a query sees only keys up to its own position.
            dtype: of the operands.
            direction: forward, or backward (which recomputes the scores: 2.5 times the FLOPs).
            v_head_dim: of values, where it differs (multi-head latent attention).
            appends: whether new keys and values are also written into a cache, as in serving.
            kv_dtype: of that cache, where it differs.
        """
        mean_dim = np.asarray(head_dim, dtype=np.float64)
        if v_head_dim is not None:
            mean_dim = 0.5 * (mean_dim + np.asarray(v_head_dim, dtype=np.float64))
        call = attention.Attention(*broadcast(batch, seq_q, seq_kv, heads, kv_heads, mean_dim))
        figures = self._chip(dtype)
        if direction == "backward":
            fitted = self._entry("attention_backward", dtype)[1]
            return attention.flash_attention_seconds(
                fitted.form, figures, call, causal, False, BACKWARD_FLOPS
            )
        if direction != "forward":
            raise UnknownNameError("attention direction", direction, ("forward", "backward"))
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        fitted = self._entry("attention", key)[1]
        seconds = attention.flash_attention_seconds(fitted.form, figures, call, causal, appends)
        if not (appends and causal):
            # Points are measured with the cache's append, which training does not have.
            return seconds
        return seconds * self._correction(
            "attention", key, call.batch, call.seq_q, call.kv_heads, call.heads / call.kv_heads, mean_dim
        )

    def attention_decode(
        self,
        batch: ArrayLike,
        seq_kv: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        dtype: str = "bf16",
        kv_dtype: str | None = None,
        cache_in_l2: bool = False,
    ) -> Array:
        """Return the time of attention for one new token a sequence over `seq_kv` cached positions.

        Args:
            batch: sequences.
            seq_kv: cached positions of each.
            heads: query heads.
            kv_heads: key-value heads.
            head_dim: of all heads.
            dtype: of the arithmetic.
            kv_dtype: of the cache, where it differs.
            cache_in_l2: whether a cache that fits lies in L2, as in a benchmark loop.
        """
        batch, seq_kv, heads, kv_heads, head_dim = broadcast(batch, seq_kv, heads, kv_heads, head_dim)
        figures = self._chip(dtype)
        kv_bytes = chip(self.device, kv_dtype).element_bytes if kv_dtype else figures.element_bytes
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        call = attention_decode.Decode(batch, seq_kv, heads, kv_heads, head_dim, kv_bytes)
        form = self._entry("attention_decode", key)[1].form
        seconds = attention_decode.split_kv_seconds(form, figures, call, cache_in_l2)
        return seconds * self._correction(
            "attention_decode", key, batch, seq_kv, kv_heads, heads / kv_heads, head_dim
        )
