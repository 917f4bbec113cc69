"""Times of attention over whole sequences and over caches, as methods of `KernelModel`."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from core.errors import UnknownNameError
from hwmodels.kernels import (
    attention,
    attention_decode,
    attention_latent,
    attention_mixed,
)
from hwmodels.kernels import linear_attention as scan
from hwmodels.kernels.base import Array, Kernels, as_floats, broadcast
from hwmodels.kernels.chip import element_bytes

# The backward pass recomputes the scores: five products, forward two (Dao 2023, FlashAttention-2).
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
        latent: bool = False,
        share: ArrayLike = 1.0,
    ) -> Array:
        """Return the time of fused attention.

        Args:
            batch: sequences.
            seq_q: query positions per sequence.
            seq_kv: key positions per sequence; with `causal` the last query attends to all of them.
            heads: query heads.
            kv_heads: key-value heads.
            head_dim: of queries and keys.
            causal: whether a query attends only to keys up to its own position.
            dtype: of the operands.
            direction: forward, or backward (which recomputes the scores: 2.5 times the FLOPs).
            v_head_dim: of values, where it differs (multi-head latent attention).
            appends: whether new keys and values are also written into a cache, as in serving.
            kv_dtype: of that cache, where it differs.
            latent: whether keys and values are expanded latent vectors. They are not read from the cache, so
                that its format counts only where a library was timed with it.
            share: speed of another kernel over the fitted one, both at full clocks.
        """
        mean_dim = np.asarray(head_dim, dtype=np.float64)
        if v_head_dim is not None:
            mean_dim = 0.5 * (mean_dim + np.asarray(v_head_dim, dtype=np.float64))
        call = attention.AttentionCalls(*as_floats(batch, seq_q, seq_kv, heads, kv_heads, mean_dim))
        figures = self._chip(dtype)
        if direction == "backward":
            fitted = self._entry("attention_backward", dtype)[1]
            return attention.flash_attention_seconds(
                fitted.form, figures, call, causal, False, BACKWARD_FLOPS, share
            )
        if direction != "forward":
            raise UnknownNameError("attention direction", direction, ("forward", "backward"))
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        fitted = self._own_entry("latent_prefill", key) if latent and causal else None
        if latent and fitted is None:
            key = dtype
        fitted = fitted or self._entry("attention", key)[1]
        seconds = attention.flash_attention_seconds(fitted.form, figures, call, causal, appends, share=share)
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
        """Return the time of attention of one new token per sequence over `seq_kv` cached positions.

        Args:
            batch: sequences.
            seq_kv: cached positions of each.
            heads: query heads.
            kv_heads: key-value heads.
            head_dim: of all heads.
            dtype: of the arithmetic.
            kv_dtype: of the cache, where it differs; slower than a 16-bit cache where the device has no fp8.
            cache_in_l2: whether a cache that fits lies in L2, as in a benchmark loop.
        """
        if kv_dtype is not None and kv_dtype.startswith("fp8") and not self._has("fp8"):
            wide = self.attention_decode(
                batch, seq_kv, heads, kv_heads, head_dim, dtype, cache_in_l2=cache_in_l2
            )
            return attention_decode.EMULATED_CACHE * wide
        batch, seq_kv, heads, kv_heads, head_dim = as_floats(batch, seq_kv, heads, kv_heads, head_dim)
        figures = self._chip(dtype)
        kv_bytes = self._cache_bytes(dtype, kv_dtype)
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        call = attention_decode.DecodeCalls(batch, seq_kv, heads, kv_heads, head_dim, kv_bytes)
        form = self._entry("attention_decode", key)[1].form
        seconds = attention_decode.split_kv_seconds(form, figures, call, cache_in_l2)
        run_heads = attention_decode.as_run(form, call).kv_heads
        return seconds * self._correction(
            "attention_decode", key, batch, seq_kv, run_heads, heads / run_heads, head_dim
        )

    def mla_decode(
        self,
        batch: ArrayLike,
        seq_kv: ArrayLike,
        heads: ArrayLike,
        latent_dim: ArrayLike = 512,
        rope_dim: ArrayLike = 64,
        queries: ArrayLike = 1,
        dtype: str = "bf16",
        kv_dtype: str | None = None,
    ) -> Array:
        """Return the time of absorbed latent attention (MLA) of new tokens over cached latent vectors.

        The cache is read once for all heads. The products into and out of the latent space are not included.

        Args:
            batch: sequences.
            seq_kv: cached positions of each.
            heads: query heads of this device.
            latent_dim: width of the latent vector (kv_lora_rank).
            rope_dim: width of the rotary part of keys.
            queries: new tokens per sequence; more than one when a draft is verified.
            dtype: of the arithmetic.
            kv_dtype: of the cache, where it differs.
        """
        arrays = broadcast(batch, queries, seq_kv, heads, latent_dim, rope_dim)
        figures = self._chip(dtype)
        call = attention_latent.LatentCache(*arrays, kv_bytes=self._cache_bytes(dtype, kv_dtype))
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        entry = self._own_entry("latent", key) or self.calibration.latent_decode
        return attention_latent.latent_decode_seconds(entry.form, figures, call)

    def mixed_attention(
        self,
        seq_q: ArrayLike,
        seq_kv: ArrayLike,
        decodes: ArrayLike,
        decode_kv: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        batch: ArrayLike = 1,
        dtype: str = "bf16",
        kv_dtype: str | None = None,
        v_head_dim: ArrayLike | None = None,
    ) -> Array:
        """Return the time of attention in a step of prefill chunks and decodes.

        Engines that call FlashAttention-2 once for both (vLLM on Ampere, Ada, RTX Blackwell) run decodes in
        the prefill kernel, which is slower than the decode kernel. Other engines run both kernels in turn.

        Args:
            seq_q: tokens of a chunk.
            seq_kv: positions that its last token attends to, including the chunk.
            decodes: sequences that decode one token.
            decode_kv: mean cached positions per decoding sequence.
            heads: query heads.
            kv_heads: key-value heads.
            head_dim: of queries and keys.
            batch: chunks of that size.
            dtype: of the arithmetic.
            kv_dtype: of the cache, where it differs.
            v_head_dim: of values in the chunk, where it differs.
        """
        chunk = self.attention(
            batch,
            seq_q,
            seq_kv,
            heads,
            kv_heads,
            head_dim,
            dtype=dtype,
            v_head_dim=v_head_dim,
            appends=True,
            kv_dtype=kv_dtype,
        )
        arrays = broadcast(decodes, decode_kv, heads, kv_heads, head_dim)
        mixed = self.calibration.mixed_attention
        if mixed is None:
            some = np.maximum(arrays[0], 1.0), np.maximum(arrays[1], 1.0), *arrays[2:]
            alone = self.attention_decode(*some, dtype=dtype, kv_dtype=kv_dtype)
            return chunk + np.where(arrays[0] > 0.0, alone, 0.0)
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        kernel = self._entry("attention", key)[1].form
        beside = attention_mixed.MixedDecodes(*arrays, kv_bytes=self._cache_bytes(dtype, kv_dtype))
        return attention_mixed.mixed_seconds(mixed.form, kernel, self._chip(dtype), chunk, beside)

    def linear_attention(
        self,
        batch: ArrayLike,
        sequence: ArrayLike,
        heads: ArrayLike,
        key_dim: ArrayLike,
        value_dim: ArrayLike,
        chunk: ArrayLike = 64,
        key_heads: ArrayLike | None = None,
        delta: ArrayLike = False,
        dtype: str = "bf16",
        direction: Literal["forward", "backward"] = "forward",
        rule: str | None = None,
    ) -> Array:
        """Return the time of a chunked scan over whole sequences: Mamba-2, linear attention, delta rule.

        Args:
            batch: sequences.
            sequence: positions of each.
            heads: value heads, each with a state of its own.
            key_dim: of a head's keys (Mamba's state size).
            value_dim: of a head's values (Mamba's head dimension).
            chunk: positions per chunk; 64 in linear attention, 128 or 256 in Mamba-2.
            key_heads: heads of queries and keys (Mamba's groups), where they are fewer.
            delta: whether states are updated by the delta rule (gated DeltaNet).
            dtype: of the operands; states are fp32.
            direction: forward or backward.
            rule: of `linear_attention.RULES`, whose kernels run; by default gdn with `delta`, else mamba2.
        """
        if direction not in ("forward", "backward"):
            raise UnknownNameError("attention direction", direction, ("forward", "backward"))
        groups = heads if key_heads is None else key_heads
        call = scan.ScanCalls(*broadcast(batch, sequence, heads, groups, key_dim, value_dim, chunk, delta))
        form = self._scan_form(rule or ("gdn" if np.all(delta) else "mamba2"))
        return scan.scan_seconds(form, self._chip(dtype), call, direction == "backward")

    def linear_decode(
        self,
        batch: ArrayLike,
        heads: ArrayLike,
        key_dim: ArrayLike,
        value_dim: ArrayLike,
        dtype: str = "bf16",
        state_bytes: float = scan.STATE_BYTES,
        rule: str | None = None,
        states_in_l2: bool = False,
    ) -> Array:
        """Return the time of one decode step of linear attention, which reads and writes each state once.

        Args:
            batch: sequences.
            heads: value heads, each with a state of its own.
            key_dim: of a head's keys (Mamba's state size).
            value_dim: of a head's values.
            dtype: of the new token's operands.
            state_bytes: an element of the state.
            rule: of `linear_attention.RULES`, whose kernels run; None: no rule's own constants.
            states_in_l2: whether states that fit lie in L2, as in a benchmark's loop.
        """
        states = scan.States(*broadcast(batch, heads, key_dim, value_dim))
        form = self._scan_form(rule)
        return scan.state_step_seconds(form, self._chip(dtype), states, state_bytes, states_in_l2)

    def _scan_form(self, rule: str | None) -> scan.ChunkedScan:
        """Return the constants of a rule's kernels: this library's, the default's, or those of any rule."""
        if rule is not None and rule not in scan.RULES:
            raise UnknownNameError("linear attention", rule, scan.RULES)
        entry = self._own_entry("scans", rule) if rule else None
        return (entry or self.calibration.linear_attention).form

    def _cache_bytes(self, dtype: str, kv_dtype: str | None) -> float:
        return element_bytes(kv_dtype or dtype, self.device.name)
