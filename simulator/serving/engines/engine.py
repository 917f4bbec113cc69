"""One serving engine at one version, as data: defaults of its scheduler, memory and graphs, and host times.

Kernel times belong to devices. An engine adds launches, gaps and host work around them; those are the
``times`` of a version, by class of layers and number format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.arrays import distinct
from core.cache import Files, read_folder
from core.errors import shown
from core.loading import Strict
from core.quantities import NotNegative
from hwmodels.device import Device
from simulator.serving.engines.figure import Figure, Kind
from simulator.serving.engines.limits import Degrees, DeviceLimits, MemoryReserve, StatePool

FOLDER = Path(__file__).parent

LayerClass = Literal["dense", "experts", "latent-experts", "linear-experts"]
FormatClass = Literal["16-bit", "fp8", "fp4"]


BATCH_GRAPHS = "sglang", "tensorrt-llm"
"""Engine families that capture decode steps by their number of sequences (SGLang cuda_graph_runner.py,
``num_tokens_per_bs``; TensorRT-LLM cuda_graph_runner.py, key of batch size and draft length). vLLM captures
numbers of tokens."""
BOUNDS: dict[str, tuple[float, float]] = {
    "block_tokens": (1, 2**13),
    "sliding_kv": (0, 1),
    "memory_share": (0.01, 1),
    "max_batched_tokens": (1, 2**20),
    "max_sequences": (1, 2**16),
    "stream_interval": (1, 2**16),
    "step_s": (0, 60),
    "first_token_s": (0, 60),
    "first_token_per_token_s": (0, 1),
    "handoff_s": (0, 60),
    "picture_s": (0, 60),
    "encoder_pixel_s": (0, 1e-3),
    "embedding_out_s": (0, 1e-6),
    "embedding_in_s": (0, 1e-6),
    "custom_all_reduce_bytes": (0, 2**40),
    "context_bytes": (0, 1e13),
    "host_block_bytes": (256, 1e9),
    "graph_bytes": (0, 1e13),
    "library_bytes": (0, 1e13),
    "rank_bytes": (0, 1e13),
    "sampler_bytes": (0, 1e4),
}
"""Lower and upper bound of each numeric figure."""
Host = Annotated[float, Field(ge=0, le=60)]
"""s."""
HAS_TILE = Figure[Host](value=0.0, kind="assumed", source="the library has a tile for this shape")


class LayerTimes(Strict):
    """Time around the kernels of one class of layers at one number format."""

    layers: LayerClass
    format: FormatClass
    generation: str = ""
    """Of the devices (a name of ``hwmodels/generations``); empty for NVIDIA devices before Blackwell."""
    layer_s: Host
    """Launches and gaps of one layer, s."""
    all_reduce_s: Host = 0.0
    """Wait for the slowest rank at one all-reduce, beyond the collective itself, s."""
    sequence_s: Host
    """Sampling and host work of one sequence in a step, s."""
    eager_layer_s: Host = 0.0
    """Host time to launch one layer outside of captured graphs, s: a step without a graph takes no less.
    Where an engine's graphs hold prompts too, that of a server without graphs, by other engines' rows."""
    first_token_s: Host = 0.0
    """Fixed part of TTFT in addition to the engine's, s."""
    prefill_factor: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    """Elapsed over priced time of the kernels that prompts add to a step: those beyond its decodes' own, or
    all of them where nothing decodes."""
    reads_kv_per_head: bool = False
    """Whether decode kernels read KV again for every query head of a group (PagedAttention without grouped
    queries: vLLM 0 on ROCm)."""
    latents_s: Figure[Host] = HAS_TILE
    """Least time of the block-scaled fp8 product of hidden states into the latents, where the version's
    library has no tile for the shape and few of the default's blocks fill the device, s; 0: it has one."""
    kind: Kind
    source: str
    rows: Annotated[int, Field(ge=0)] | None = None
    left_out_error: NotNegative | None = None


class Engine(Strict):
    """One serving engine at one version."""

    name: str
    """The catalogue name, e.g. "vllm-0.15"."""
    engine: str
    """The family, e.g. "vllm"."""
    version: str
    based_on: str | None = None
    """The engine file that supplies every key left out here; its figures are then assumed."""

    scheduler: Figure[str]
    """Name in the registry of schedulers."""
    schedules_ahead: Figure[bool]
    """Whether step k + 1 is scheduled while step k runs (asynchronous or overlap scheduling)."""
    chunked_prefill: Figure[bool]
    """Whether a prompt longer than the token budget is cut."""
    preemption: Figure[str]
    """recompute, swap, or none (admission reserves memory for the whole request)."""
    prefix_caching: Figure[bool]
    block_tokens: Figure[int]
    """Tokens of one KV block."""
    memory_share: Figure[float]
    """Share of the memory in ``memory_share_of`` that the engine may fill."""
    memory_share_of: Literal["total", "free"]
    """total: weights, activations and KV share a part of the device; free: KV takes a part of the rest."""
    memory_reserved: MemoryReserve | None = None
    """What gives the share by device and degrees instead of ``memory_share``; activations are part of it."""
    state_pool: StatePool | None = None
    """Memory of the states of linear layers, and the sequences that it bounds; none: they are not counted."""
    max_batched_tokens: Figure[int]
    """Token budget of a step."""
    budget_over_ranks: Figure[bool] = Figure[bool](
        value=False, kind="assumed", source="each attention rank has the whole budget"
    )
    """Whether data-parallel attention ranks share the token budget."""
    max_sequences: Figure[int]
    """Sequences of a step."""
    device_limits: Annotated[tuple[DeviceLimits, ...], Field(strict=False)] = ()
    """Limits by device; the first that apply replace ``max_batched_tokens`` and ``max_sequences``."""
    graph_sizes: Figure[str]
    """Captured token counts, as ``first:last:step`` ranges and single sizes; empty: always eager."""
    graphs_mixed: Figure[bool]
    """Whether steps with prefill tokens run in (piecewise) graphs too."""
    pads_ranks: Figure[bool] = Figure[bool](
        value=False, kind="assumed", source="only steps in graphs are padded"
    )
    """Whether steps outside of graphs pad every data-parallel rank to the tokens of the largest."""
    gathers_by_all_reduce: Figure[bool] = Figure[bool](
        value=False, kind="assumed", source="prompts are gathered and scattered as decodes are"
    )
    """Whether attention ranks all-reduce a buffer of all tokens, before and after the experts of a step with
    prompts, instead of gathering their own and scattering the outputs."""
    admits_whole: Figure[bool] = Figure[bool](
        value=False, kind="read", source="vLLM: allocate_slots takes the blocks of the scheduled chunk"
    )
    """Whether a prompt is admitted only when the KV blocks of all of it are free."""
    sliding_kv: Figure[float] = Figure[float](
        value=1.0, kind="read", source="TensorRT-LLM resource_manager.py: windows are max_seq_len"
    )
    """Tokens of sliding layers kept for each of full ones, where a model has both: 1, as many; 0, blocks that
    leave the window are freed, so that a sequence holds a window of them."""
    mxfp4_hopper: Figure[str] = Figure[str](
        value="triton", kind="read", source="OpenAI's triton_kernels (vLLM pull 28788, SGLang pull 12696)"
    )
    """Kernels of MXFP4 experts on Hopper: triton or marlin."""
    attention_sinks_before_hopper: Figure[str] = Figure[str](
        value="", kind="assumed", source="kernels with sinks are as fast as those without"
    )
    """Library of prefill attention with sinks on devices before Hopper: triton, or that of other
    attention where empty."""
    blackwell_experts: Figure[str] = Figure[str](
        value="", kind="assumed", source="those of the newest tables"
    )
    """Kernels of other experts on Blackwell: triton, or the newest where empty."""
    deepgemm_experts_tensor: Figure[int] = Figure[int](
        value=0, kind="assumed", source="no engine but vLLM pads every expert"
    )
    """Largest tensor degree of experts in block-scaled fp8 that run in DeepGEMM's padded blocks; 0: none."""
    packs_scales: Figure[bool] = Figure[bool](
        value=False, kind="assumed", source="engines bring scales into the kernels' layout once"
    )
    """Whether DeepGEMM packs the scales of block-scaled weights on Blackwell at every call."""
    scans_decodes: Figure[bool] = Figure[bool](
        value=False, kind="assumed", source="decodes beside prompts run in the kernel of decodes"
    )
    """Whether layers of the delta rule compute decodes beside prompts as prompts of one token."""
    host_block_bytes: Figure[float] = Figure[float](
        value=2.0e6, kind="assumed", source="as vllm-0.12: blocks of all layers are copied together"
    )
    """Bytes of one copy of KV between device and host memory."""
    drafts: Figure[str] = Figure[str](value="", kind="assumed", source="none known")
    """Kinds of speculation that the engine runs, separated by blanks; a search tries no others."""
    encoders: Figure[str] = Figure[str](value="", kind="assumed", source="none known")
    """Families of decoders with an encoder that the engine runs, separated by blanks; any: all."""
    sends_to_experts: Figure[bool] = Figure[bool](value=False, kind="assumed", source="none known")
    """Whether it can send tokens to the ranks of their experts (DeepEP) instead of gathering them."""
    two_batches: Figure[bool] = Figure[bool](value=False, kind="assumed", source="none known")
    """Whether it overlaps this exchange with a second micro batch."""
    stream_interval: Figure[int]
    """Tokens of a request between two streamed chunks."""

    step_s: Figure[float]
    """Host time of a step that no kernel hides, s."""
    idle_around: Figure[float]
    """Share of the time around kernels in which devices idle; else small kernels keep them busy."""
    first_token_s: Figure[float]
    """Fixed part of TTFT outside of steps: HTTP, tokenizer, queue hand-over, s."""
    first_token_per_token_s: Figure[float] = Figure[float](value=0.0, kind="assumed", source="none known")
    """Host time of one prompt token (tokenizer), s."""
    handoff_s: Figure[float] = Figure[float](value=0.0, kind="assumed", source="none known")
    """Time from a prefill to a decode replica beside the way of the KV, s."""
    picture_s: Figure[float] = Figure[float](value=0.0, kind="assumed", source="none known")
    """Host time of one picture in the step that encodes it, in addition to its tower's kernels, s."""
    encoder_pixel_s: Figure[float] = Figure[float](value=0.0, kind="assumed", source="none known")
    """Host time of a pixel in a pool of role encoder, before its tower: decoding, resizing, patches, s."""
    embedding_out_s: Figure[float] = Figure[float](value=0.0, kind="assumed", source="devices send them")
    """Time in which an encoder's device copies a byte of embeddings to pageable host memory, s."""
    embedding_in_s: Figure[float] = Figure[float](value=0.0, kind="assumed", source="devices receive them")
    """Time in which the language model's device copies a byte of embeddings from such memory, s."""
    custom_all_reduce_bytes: Figure[int]
    """Largest message of the engine's own all-reduce kernel; NCCL above."""
    context_bytes: Figure[float]
    """Driver context, libraries and communication buffers outside the engine's accounting, B."""
    graph_bytes: Figure[float]
    """Memory of captured graphs, B."""
    library_bytes: Figure[float] = Figure[float](
        value=0.35e9, kind="derived", source="evidence/accuracy/kv_capacity.py: vLLM's logs on one device"
    )
    """Memory that the engine's profiling run finds taken by libraries, B."""
    rank_bytes: Figure[float] = Figure[float](value=0.0, kind="assumed", source="counted in context_bytes")
    """The same of communication buffers, where a replica spans several devices, B."""
    sampler_bytes: Figure[float] = Figure[float](value=4.0, kind="assumed", source="logits in 32 bits")
    """Peak of sampling in the profiling run, B for each sequence and word."""
    graphs_counted: Figure[bool] = Figure[bool](
        value=False, kind="assumed", source="graphs are captured beside the share"
    )
    """Whether captured graphs take part of ``memory_share``, so that less KV fits."""
    times: Annotated[tuple[LayerTimes, ...], Field(strict=False, min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "small_device" in data:
            if "device_limits" in data:
                raise ValueError("small_device: device_limits replaces it; give one of them")
            data = {**data, "device_limits": [data["small_device"]]}
            del data["small_device"]
        base = data.get("based_on") if isinstance(data, Mapping) else None
        if not isinstance(base, str):
            return data
        if f"{base}.yaml" not in _shipped():
            raise ValueError(f"based_on: no shipped engine is called {shown(base)}")
        return {**_inherited(cls, base), **data}

    @model_validator(mode="after")
    def _check(self) -> Engine:
        self.graphs()
        for name, (lowest, highest) in BOUNDS.items():
            self._bounded(name, getattr(self, name).value, lowest, highest)
        for index, limits in enumerate(self.device_limits):
            for name in ("max_batched_tokens", "max_sequences"):
                value = getattr(limits, name).value
                self._bounded(f"device_limits[{index}].{name}", value, *BOUNDS[name])
        return self

    @staticmethod
    def _bounded(name: str, value: float, lowest: float, highest: float) -> None:
        if not lowest <= value <= highest:
            raise ValueError(
                f"{name}.value: a number from {lowest:g} to {highest:g} is needed, found {value:g}"
            )

    @property
    def fitted(self) -> bool:
        """Whether any times come from published runs of this version."""
        return any(entry.kind != "assumed" for entry in self.times)

    @property
    def captures_batches(self) -> bool:
        """Whether a graph holds a number of sequences, however many drafts each verifies, or of tokens."""
        return self.engine in BATCH_GRAPHS

    def runs(self, drafts: str) -> bool:
        """Whether the engine is known to run a kind of speculation."""
        return drafts in self.drafts.value.split()

    def sends_on(self, device: Device) -> bool:
        """Whether it can send tokens to the ranks of their experts on a device: DeepEP's kernels are CUDA's
        (deepseek-ai/DeepEP, README: NVSHMEM)."""
        return self.sends_to_experts.value and device.vendor == "nvidia"

    def has_encoder(self, family: str) -> bool:
        """Whether the engine runs decoders with an encoder of a family."""
        return self.encoders.value == "any" or family in self.encoders.value.split()

    def graphs(
        self,
        device: Device | None = None,
        tensor: int = 1,
        largest: int | None = None,
        stated: Sequence[int] | None = None,
    ) -> NDArray[np.int64]:
        """Return the captured sizes on a device, ascending; empty where every step is eager.

        Args:
            device: limits the sizes where the engine's defaults do; all sizes where not given.
            tensor: tensor-parallel degree.
            largest: stated largest size. Beyond the engine's own sizes, they double up to it, as
                TensorRT-LLM makes them for ``cuda_graph_config.max_batch_size`` (llm_args.py,
                ``_generate_cuda_graph_batch_sizes``).
            stated: all sizes, in place of the engine's.
        """
        if stated:
            return distinct(np.array(stated, dtype=np.int64))
        sizes: set[int] = set()
        for part in self.graph_sizes.value.split():
            if not re.fullmatch(r"\d{1,6}(:\d{1,6}:[1-9]\d{0,5})?", part):
                raise ValueError(f"graph_sizes: {shown(part)} is neither a size nor first:last:step")
            numbers = [int(number) for number in part.split(":")]
            first, last, step = numbers if len(numbers) == 3 else (numbers[0], numbers[0], 1)
            sizes.update(range(first, last + 1, step))
        ascending = np.array(sorted(sizes), dtype=np.int64)
        if largest is not None:
            doubled = 2 ** np.arange(17)
            more = doubled[(doubled > np.max(ascending, initial=0)) & (doubled < largest)]
            return np.concatenate([ascending[ascending < largest], more, [largest]])
        limits = None if device is None else self._limits(device)
        if limits is None or limits.largest_graph is None:
            return ascending
        wide = limits.largest_graph_tp4 if tensor >= 4 else None
        return ascending[ascending <= (wide or limits.largest_graph).value]

    def token_budget(self, device: Device, ranks: int = 1) -> int:
        """Return the default token budget of a step of one attention rank on a device.

        Args:
            device: limits the budget where the engine's defaults do.
            ranks: data-parallel attention ranks.
        """
        budget = (self._limits(device) or self).max_batched_tokens.value
        return max(budget // ranks, 1) if self.budget_over_ranks.value else budget

    def captured(self, device: Device, pool: Degrees) -> NDArray[np.int64]:
        """Return the captured sizes of a replica's decode steps, ascending.

        They count sequences where the engine captures batches, else tokens.
        """
        largest = None if pool.largest_graph is None else max(pool.largest_graph // self.verified(pool), 1)
        return self.graphs(device, pool.tensor * pool.data, largest, pool.graph_sizes)

    def verified(self, pool: Degrees) -> int:
        """Return the tokens of each sequence in a captured decode step."""
        drafts = pool.speculation
        return 1 if drafts is None or not self.captures_batches else drafts.queries

    def share_of_memory(self, device: Device, pool: Degrees, budget: int | None = None) -> float:
        """Return the share of a device's memory that the engine fills by default in a replica.

        Args:
            device: its memory.
            pool: degrees and captured sizes of the replica.
            budget: token budget of a step of one attention rank; by default the engine's.
        """
        if self.memory_reserved is None:
            return self.memory_share.value
        if budget is None:
            chunk = self.token_budget(device)
        else:
            chunk = budget * pool.data if self.budget_over_ranks.value else budget
        sizes = self.captured(device, pool)
        graph = int(sizes[-1]) if len(sizes) else 0
        free = self.memory_reserved.reserved(device, chunk, graph, pool)
        return max(1.0 - free / device.memory_bytes, BOUNDS["memory_share"][0])

    def sequence_limit(self, device: Device) -> int:
        """Return the default number of sequences of a step on a device."""
        return (self._limits(device) or self).max_sequences.value

    def _limits(self, device: Device) -> DeviceLimits | None:
        return next((limits for limits in self.device_limits if limits.apply(device)), None)


@cache
def _shipped() -> Files:
    """The files of the presets, parsed."""
    return read_folder(FOLDER)


@cache
def _inherited(engine: type[Engine], base: str) -> Mapping[str, Any]:
    """Return what versions based on a shipped engine inherit; not to be changed."""
    base_engine = engine.model_validate(_shipped()[f"{base}.yaml"])
    figures = base_engine.model_dump(exclude={"name", "version", "based_on"})
    return {key: _assumed(value, base) for key, value in figures.items()}


def _assumed(value: Any, base: str) -> Any:
    """Return a copy of inherited figures whose kind is assumed."""
    if isinstance(value, dict):
        copy = {key: _assumed(inner, base) for key, inner in value.items() if inner is not None}
        if "kind" in copy and "source" in copy:
            copy["kind"] = "assumed"
            copy["source"] = f"as {base}: {re.sub('^as [^:]*: ', '', copy['source'])}"
        return copy
    if isinstance(value, (list, tuple)):
        return [_assumed(inner, base) for inner in value]
    return value
