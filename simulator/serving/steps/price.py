"""The price of one step of one replica: ops of a layer, all-reduces, and the engine's time around them.

All functions take arrays of cases and return seconds of the whole model on one rank, pipeline stages
added up. `simulator.serving.steps.table` interpolates them for the event engine and for steady states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodels.cluster import Cluster
from hwmodels.kernels import KernelModel
from hwmodels.kernels.chip import peak_dtype
from hwmodels.kernels.linear_attention import STATE_BYTES
from simulator.models import Model
from simulator.ops import SERVING, Batch, ExpertLayer, Formats, Op, Product, Rank, Shard
from simulator.ops import head as head_ops
from simulator.ops import layer as layer_ops
from simulator.pricing import Prices, price
from simulator.serving.engines import Engine, LayerTimes, generation_of, layer_times
from simulator.serving.engines.classes import format_class, layer_class
from simulator.serving.question.deployment import NO_GRAPHS, Pool
from simulator.serving.steps.all_reduce import all_reduce_seconds, exchange_seconds
from simulator.serving.steps.deepgemm import flashinfer_seconds, packing_seconds, padded_seconds
from simulator.serving.steps.site_times import at_site
from simulator.serving.steps.weight_only import (
    WeightFormats,
    experts_kernel,
    wide_format,
    widened_experts,
    widened_product,
)
from simulator.site import ServerSite

Array = NDArray[np.float64]

LIBRARIES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
"""Names of the engine families' kernels in calibrations."""

ATTENTION = "projections", "core"
"""Parts of a layer's ops whose weights are attention's."""
LINEAR = "linear"
"""Kind of layers with linear attention."""
STATE_COPIES = 4.0
"""Passes over states where decodes are scanned: a gather before the scan and a scatter after it read and
write them (vLLM, gdn_linear_attn.py: ``ssm_state[non_spec_state_indices_tensor]``)."""
LATENTS = "query_down"
"""The product into the latents, for which a library may lack a tile."""

UNLEARNED = ServerSite(source="", device="", engine="")
"""Factors of a server that nobody measured."""


class StepPrice:
    """Seconds of the parts of a step.

    Args:
        model: the architecture.
        cluster: devices and links; a replica's ranks are its first devices.
        pool: degrees and number formats.
        engine: kernels' library and times around kernels.
    """

    def __init__(self, model: Model, cluster: Cluster, pool: Pool, engine: Engine) -> None:
        if pool.clock_mhz is not None:
            cluster = cluster.at_clock(1e6 * pool.clock_mhz, "clock_mhz")
        pool = pool.of(model)
        self.model, self.cluster, self.pool, self.engine = model, cluster, pool, engine
        kernels = cluster.device.kernels.using(LIBRARIES.get(engine.engine, ""))
        formats = WeightFormats.of(model, cluster, pool.stored, pool.activations)
        self.weights = formats.timed(kernels, engine, pool.expert_kernels)
        kv = "fp8" if pool.kv == "fp8" else None
        wide = wide_format(cluster.device.peak_flops)
        self.formats = Formats(linear=self.weights.dense, core=wide, kv=kv)
        self.attention_formats = replace(self.formats, linear=self.weights.of_attention().dense)
        self.prices = Prices(kernels, cluster, served=True)
        self.expert_prices = Prices(self._expert_kernels(), cluster, served=True)
        self.prefill_prices = Prices(self._prefill_kernels(), cluster, served=True)
        self.shard = Shard(tensor=pool.tensor, expert=pool.expert, expert_tensor=pool.experts_cut)
        generation = generation_of(engine, cluster.device)
        self.times: LayerTimes
        self.times, self.assumed = layer_times(
            engine, layer_class(model), format_class(pool.stored), generation
        )
        self.dense_times = self.times
        """Times of layers without experts beside layers with them."""
        if model.moe is not None and model.linear is None and model.dense_layers:
            self.dense_times, _ = layer_times(engine, "dense", format_class(pool.stored), generation)
        self.least_latents_s = self.times.latents_s.value if self.weights.dense == "fp8_block" else 0.0
        self.site = pool.site or UNLEARNED
        if pool.site is not None:
            same_times = self.dense_times is self.times
            self.times = at_site(self.times, pool.site, engine)
            self.dense_times = self.times if same_times else at_site(self.dense_times, pool.site, engine)
        self.layer_kinds = {kind: len(layers) for kind, layers in model.layer_groups.items()}
        """Number of layers by kind."""
        self.attention_kinds = Counter(model.attention_kind(i) for i in range(model.layers))

    # Parts

    def linear(self, tokens: ArrayLike) -> Array:
        """All but attention over context and routed experts, for ``tokens`` tokens on one rank."""
        return self.inside_stages(tokens) + self.between_stages(np.asarray(tokens, dtype=np.float64))

    def inside_stages(self, tokens: ArrayLike, attention: bool = False) -> Array:
        """Part of ``linear`` without the sends between pipeline stages; or attention's products alone."""
        count = np.asarray(tokens, dtype=np.float64)
        rank = self._rank(Batch.prefill(1.0, count))
        seconds = np.zeros(np.shape(count))
        for kind, layers in self.layer_kinds.items():
            ops = [op for op in self._layer_ops(rank, *kind) if op.depends_on == "tokens"]
            ops = [op for op in ops if op.part in ATTENTION] if attention else ops
            seconds = seconds + layers * self._seconds([op for op in ops if not isinstance(op, ExpertLayer)])
        return self.site.factor("products") * self.site.by_tokens(count) * seconds

    def experts(self, tokens: ArrayLike) -> Array:
        """Routed experts, and the exchange of tokens between attention ranks, for tokens of all ranks."""
        count = np.asarray(tokens, dtype=np.float64)
        layers = self.model.moe_layers
        if not layers:
            return np.zeros(np.shape(count))
        rank = self._rank(Batch.prefill(1.0, count))
        ops = [
            replace(op, dtype=self.weights.experts)
            for op in layer_ops(rank, "full", True)
            if isinstance(op, ExpertLayer)
        ]
        if blocks := self.blocks_of_experts:
            padded = (padded_seconds(op, self.prices, self.packs_scales, blocks == "sent") for op in ops)
            seconds = sum(padded, start=np.zeros(()))
        else:
            seconds = self.expert_padding * self._seconds(ops, self.expert_prices)
        layers_s = layers * (seconds + self._exchange(count))
        return self.site.factor("experts") * self.site.by_tokens(count / self.pool.data) * layers_s

    def prefill_attention(self, queries: ArrayLike, context: ArrayLike) -> Array:
        """Attention of one chunk whose last token sees ``context`` tokens, all layers."""
        queries, context = np.asarray(queries, dtype=np.float64), np.asarray(context, dtype=np.float64)
        rank = self._rank(Batch.prefill(1.0, queries, context, self.model.causal))
        shape = np.broadcast_shapes(queries.shape, context.shape)
        return self._attention(rank, shape, self.prefill_prices)

    def decode_attention(self, sequences: ArrayLike, keys: ArrayLike) -> Array:
        """Attention of one new token of each sequence over ``keys`` tokens, all layers."""
        sequences, keys = np.asarray(sequences, dtype=np.float64), np.asarray(keys, dtype=np.float64)
        rank = self._rank(Batch.decode(sequences, keys))
        if self.times.reads_kv_per_head:
            rank = replace(rank, model=self.model.model_copy(update={"kv_heads": self.model.heads}))
        seconds = self._attention(rank, np.broadcast_shapes(sequences.shape, keys.shape), self.prices)
        return self.site.factor("attention") * self.site.by_tokens(sequences) * seconds

    @property
    def mixes(self) -> bool:
        """Whether decodes beside a prefill chunk run in the prefill kernel (FlashAttention-2 in vLLM)."""
        calibration = self.prices.kernels.calibration
        return (
            calibration.mixed_attention is not None
            and self.engine.engine == "vllm"
            and self.engine.scheduler.value == "chunked"
            and self.model.mla is None
            and self.model.linear is None
        )

    @property
    def scans_decodes(self) -> bool:
        """Whether linear layers compute decodes beside a prefill chunk as prompts of one token."""
        linear = self.model.linear
        return linear is not None and linear.delta and self.engine.scans_decodes.value

    @property
    def overlap_exponent(self) -> float:
        """Overlap of chunks and decodes in one attention kernel; 1 adds their times."""
        mixed = self.prices.kernels.calibration.mixed_attention
        return mixed.form.overlap_exponent if self.mixes and mixed is not None else 1.0

    def decodes_in_prefill(self, sequences: ArrayLike, keys: ArrayLike) -> Array:
        """Attention of decodes that run in the prefill kernel of a mixed step, all layers."""
        if self.scans_decodes:
            return self._decodes_in_scan(sequences, keys)
        if not self.mixes:
            return self.decode_attention(sequences, keys)
        sequences, keys = np.asarray(sequences, dtype=np.float64), np.asarray(keys, dtype=np.float64)
        model, kernels = self.model, self.prices.kernels
        heads = model.heads / self.pool.tensor
        kv_heads = max(model.kv_heads / self.pool.tensor, 1.0)
        seconds = np.zeros(np.broadcast_shapes(sequences.shape, keys.shape))
        formats = {"dtype": self.formats.core, "kv_dtype": self.formats.kv}
        for kind, layers in self.attention_kinds.items():
            window = model.sliding_window if kind == "sliding" and model.sliding_window else np.inf
            shape = heads, kv_heads, model.head_dim
            both = kernels.mixed_attention(1.0, 1.0, sequences, np.minimum(keys, window), *shape, **formats)
            chunk = kernels.mixed_attention(1.0, 1.0, 0.0, 1.0, *shape, **formats)
            seconds = seconds + layers * np.maximum(both - chunk, 0.0)
        return self.site.factor("attention") * seconds

    def head(self, rows: ArrayLike) -> Array:
        """Output layer and two passes over its logits in fp32, for sequences that are sampled.

        Encoders have none: the mean of their vectors, or the first, is the answer.
        """
        rows = np.asarray(rows, dtype=np.float64)
        if not self.model.causal:
            return np.zeros(rows.shape)
        rank = self._rank(Batch.decode(rows, 1.0))
        logits = 2.0 * 4.0 * rows * self.model.vocabulary
        passes = self.prices.kernels.memory_bound(logits, "softmax")
        seconds = self._seconds(head_ops(rank)) + passes
        return self.site.factor("products") * self.site.by_tokens(rows) * seconds

    def around(self, sequences: ArrayLike) -> Array:
        """Engine time around the kernels of a step with ``sequences`` sequences, s."""
        step = self.site.factor("host") * self.engine.step_s.value
        return step + self.gaps + self.times.sequence_s * np.asarray(sequences)

    @property
    def gaps(self) -> float:
        """Launches and gaps of all layers, and the wait for the slowest rank at their all-reduces, s."""
        reduces = self.model.layers * self.reduces_a_layer * self.times.all_reduce_s
        return self._host(self.times.layer_s, self.dense_times.layer_s) + reduces

    @property
    def graphs_mixed(self) -> bool:
        """Whether steps with prefill tokens run in graphs: of the engine, if the server captures any."""
        return self.engine.graphs_mixed.value and self.pool.largest_graph != NO_GRAPHS

    @property
    def eager(self) -> float:
        """Minimum time of the layers of a step without a graph: their kernel launches, s.

        Engines whose graphs hold prompts launch compiled pieces of layers beyond them: no run shows these to
        take longer than their kernels.
        """
        if self.graphs_mixed:
            return 0.0
        slower = self.cluster.launch_slowdown
        return self._host(self.times.eager_layer_s, self.dense_times.eager_layer_s) * slower

    @property
    def verified(self) -> int:
        """Tokens of each sequence in a captured decode step."""
        return self.engine.verified(self.pool)

    @property
    def graphs(self) -> NDArray[np.int64]:
        """Tokens of the decode steps in graphs, ascending; sizes count sequences where engines do."""
        return self.verified * self.engine.captured(self.cluster.device, self.pool)

    @property
    def expert_padding(self) -> float:
        """Stored over the model's own size of a device's share of an expert."""
        moe = self.model.moe
        if moe is None:
            return 1.0
        return self.weights.padding(moe.latent or self.model.hidden, moe.feed_forward / self.pool.experts_cut)

    @property
    def blocks_of_experts(self) -> Literal["padded", "sent"] | None:
        """Whose rows DeepGEMM's whole blocks hold: all, padded by expert, or those that DeepEP sent a rank
        (SGLang v0.5.9 ep_moe/layer.py, DeepEPMoE); None where experts run in other kernels."""
        pool, engine, runs = self.pool, self.engine, self.cluster.device.generation.deepgemm
        if not runs or self.weights.experts != "fp8_block" or pool.expert_kernels is not None:
            return None
        if pool.experts_cut <= engine.deepgemm_experts_tensor.value:
            return "padded"
        sends = pool.exchange == "deepep" and engine.sends_on(self.cluster.device) and pool.expert > 1
        return "sent" if sends and pool.product_kernels is None else None

    @property
    def packs_scales(self) -> bool:
        """Whether block-scaled products pack the scales of their weights at every call."""
        return self.engine.packs_scales.value and self.cluster.device.generation.packed_scales

    @property
    def reduces_a_layer(self) -> int:
        """Number of all-reduces per layer."""
        reduces = 1 if self.model.parallel_block else 3 if self.model.encoder else 2
        return 0 if self.pool.tensor == 1 else reduces

    # Implementation

    def _host(self, layer_s: float, dense: float) -> float:
        """Host time of all layers, each charged by its class, s."""
        others = self.model.dense_layers if self.dense_times is not self.times else 0
        return (self.model.layers - others) * layer_s + others * dense

    def _rank(self, batch: Batch) -> Rank:
        return Rank(self.model, batch, self.shard, self.formats, SERVING)

    def _layer_ops(self, rank: Rank, mixer: str, experts: bool, mlp: bool = True, width: int = 0) -> list[Op]:
        """Ops of a layer; attention's products in the format of their weights."""
        ops = layer_ops(rank, mixer, experts, mlp, width)
        if self.attention_formats == self.formats:
            return ops
        others = layer_ops(replace(rank, formats=self.attention_formats), mixer, experts, mlp, width)
        return [other if other.part in ATTENTION else op for op, other in zip(ops, others, strict=True)]

    def _attention(self, rank: Rank, shape: tuple[int, ...], prices: Prices, kinds: str = "") -> Array:
        """Attention of all layers, or of those of one kind."""
        seconds = np.zeros(shape)
        for kind, layers in self.attention_kinds.items():
            if kinds and kind != kinds:
                continue
            ops = [op for op in self._layer_ops(rank, kind, False) if op.depends_on == "context"]
            seconds = seconds + layers * self._seconds(ops, prices)
        return seconds

    def _decodes_in_scan(self, sequences: ArrayLike, keys: ArrayLike) -> Array:
        """Attention of decodes in a mixed step whose linear layers scan them, all layers.

        States are gathered before the scan and scattered after it: two copies of each.
        """
        sequences, keys = np.asarray(sequences, dtype=np.float64), np.asarray(keys, dtype=np.float64)
        shape = np.broadcast_shapes(sequences.shape, keys.shape)
        scanned, stepped = Batch.prefill(sequences, 1.0, keys), Batch.decode(sequences, keys)
        as_prompts = self._attention(self._rank(scanned), shape, self.prefill_prices, LINEAR)
        as_decodes = self._attention(self._rank(stepped), shape, self.prices, LINEAR)
        copies = STATE_COPIES * self._state_bytes * sequences
        copied = self.attention_kinds[LINEAR] * self.prices.kernels.memory_bound(copies, "copy")
        more = self.site.factor("attention") * (as_prompts - as_decodes + copied)
        return self.decode_attention(sequences, keys) + more

    @property
    def _state_bytes(self) -> float:
        """Bytes of a sequence's state in one linear layer on a rank."""
        linear = self.model.linear
        if linear is None:
            return 0.0
        return STATE_BYTES * linear.heads / self.pool.tensor * linear.key_dim * linear.value_dim

    def _prefill_kernels(self) -> KernelModel:
        """Kernels of attention over prompts: another library's where the engine's own has no sinks."""
        named = self.engine.attention_sinks_before_hopper.value if self.model.attention_sinks else ""
        library = f"{LIBRARIES.get(self.engine.engine, '')}-{named}-attention"
        kernels = self.prices.kernels
        before = not self.cluster.device.generation.attention_sinks
        return kernels.using(library) if before and library in kernels.calibration.libraries else kernels

    def _expert_kernels(self) -> KernelModel:
        """Kernels of experts: another library's on Blackwell where the engine or the pool runs it."""
        named = self.pool.expert_kernels or self.engine.blackwell_experts.value
        library = f"{LIBRARIES.get(self.engine.engine, '')}-{named}"
        kernels = self.prices.kernels
        return kernels.using(library) if library in kernels.calibration.libraries else kernels

    def _seconds(self, ops: Iterable[Op], prices: Prices | None = None) -> Array:
        """Elapsed seconds of ops, one after the other."""
        listed = list(ops)
        reduces = [getattr(op, "operation", "") == "all_reduce" for op in listed]
        computed = [op for op, reduced in zip(listed, reduces, strict=True) if not reduced]
        others = iter(price(computed, prices or self.prices))
        total: Array = np.zeros(())
        for op, reduced in zip(listed, reduces, strict=True):
            if reduced:
                total = total + self._reduce(op)
            else:
                op_s = self._narrowed(op, np.asarray(next(others), dtype=np.float64))
                blocks = op if isinstance(op, Product) and op.dtype == "fp8_block" else None
                if blocks and self.pool.product_kernels:
                    op_s = flashinfer_seconds(blocks, self.prices.kernels, op_s)
                total = total + (np.maximum(op_s, self.least_latents_s) if op.name == LATENTS else op_s)
                if blocks and self.packs_scales:
                    total = total + packing_seconds(blocks, self.prices.kernels)
        return total

    def _reduce(self, op: Op) -> Array:
        bytes_ = np.asarray(op.bytes, dtype=np.float64)  # type: ignore[attr-defined]
        star = self.pool.all_reduce == "star"
        return all_reduce_seconds(self.cluster, self.pool.tensor, bytes_, self.engine, star)

    def _narrowed(self, op: Op, seconds: Array) -> Array:
        """Seconds of a product whose weights are read in a narrower format than it computes in."""
        experts = isinstance(op, ExpertLayer)
        weights = self.weights.of_attention() if op.part in ATTENTION else self.weights
        if not (weights.experts_widened if experts else weights.dense_widened):
            return seconds
        if not np.any(np.asarray(op.parameters)) or op.part == "end":
            return seconds
        device = self.prices.kernels.device
        flops = np.asarray(op.flops, dtype=np.float64)
        if experts:
            kernel = experts_kernel(weights, device, self.engine, self.pool.expert_kernels)
            return widened_experts(weights, device, seconds, flops, kernel)
        parameters = np.asarray(op.parameters, dtype=np.float64)
        product = isinstance(op, Product)
        return widened_product(weights, device, seconds, parameters, flops, self.engine, product)

    def exchange(self, tokens: ArrayLike) -> Array:
        """Exchange of tokens between attention ranks and experts in all layers, for tokens of all ranks."""
        return self.model.moe_layers * self._exchange(np.asarray(tokens, dtype=np.float64))

    def _exchange(self, tokens: Array) -> Array:
        """A layer's exchange of tokens between attention ranks and experts: the pool's method or the faster.

        All tokens are gathered on every rank and the outputs reduced, or each token is sent to the ranks of
        its experts and back (DeepEP), once a rank.
        """
        ranks, moe = self.pool.tensor * self.pool.data, self.model.moe
        if self.pool.data == 1 or moe is None:
            return np.zeros(np.shape(tokens))
        wide = moe.latent or self.model.hidden
        size = tokens * wide * 2.0
        collective = self.cluster.collective
        gathered = collective("all_gather", size, ranks) + collective("reduce_scatter", size, ranks)
        if self.engine.gathers_by_all_reduce.value:
            largest_graph = self.graphs[-1] if len(self.graphs) else 0
            has_prompts = tokens > largest_graph * self.pool.data
            gathered = np.where(has_prompts, 2.0 * collective("all_reduce", size, ranks), gathered)
        deepep = self.engine.sends_on(self.cluster.device)
        lacks = self.engine.sends_to_experts.value and not deepep
        if self.pool.expert == 1 or self.pool.exchange == "all-gather" or lacks:
            return gathered
        hit = self.pool.expert * -np.expm1(moe.top_k * np.log1p(-1.0 / self.pool.expert))
        sent = tokens / ranks * hit * wide
        dispatch = sent * (1.0 if peak_dtype(self.weights.experts) not in ("bf16", "fp16") else 2.0)
        there = exchange_seconds(self.cluster, ranks, dispatch, deepep)
        both = there + exchange_seconds(self.cluster, ranks, 2.0 * sent, deepep)
        return both if self.pool.exchange == "deepep" else np.minimum(gathered, both)

    def between_stages(self, tokens: Array) -> Array:
        """Sends of a micro batch's activations through all pipeline stages."""
        stages = self.pool.pipeline
        if stages == 1:
            return np.zeros(np.shape(tokens))
        size = tokens * self.model.hidden * 2.0
        return (stages - 1) * self.cluster.collective("send_receive", size, 2, self.pool.tensor)

    @cached_property
    def parts(self) -> dict[str, Callable[..., Array]]:
        """The parts by name."""
        return {
            "linear": self.linear,
            "experts": self.experts,
            "prefill_attention": self.prefill_attention,
            "decode_attention": self.decode_attention,
            "head": self.head,
        }
