"""Scheduling options of a serving engine. A preset sets all of them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from core.loading import Strict


class EngineOptions(Strict):
    """Options set by an engine's flags; defaults are vLLM 0.19's."""

    scheduler: str = Field("chunked", description="policy that picks the sequences of a step")
    scheduler_options: dict[str, Any] = Field(default_factory=dict, description="parameters of the scheduler")
    chunked_prefill: bool = Field(True, description="cut prompts that the token budget does not hold")
    token_budget: int = Field(
        2048, ge=1, le=2**20, description="most query tokens of a step (max_num_batched_tokens)"
    )
    max_sequences: int = Field(
        128, ge=1, le=2**16, description="most running sequences of a rank (max_num_seqs)"
    )
    max_context: int = Field(
        0, ge=0, le=2**27, description="most tokens of a sequence (max_model_len); 0: the model's"
    )
    block_tokens: int = Field(16, ge=1, le=2**13, description="tokens of a KV block")
    memory_share: float = Field(
        0.9, ge=0.01, le=1, description="share of device memory that the engine may use"
    )
    kv_blocks: int = Field(
        0, ge=0, le=2**31, description="KV blocks of a rank; 0: what the memory rule leaves"
    )
    prefix_caching: bool = Field(True, description="reuse KV blocks of equal prefixes")
    state_buffers: bool = Field(
        default=False,
        description="buffers for the states of linear layers of each sequence, with `prefix_caching` "
        "(SGLang: --mamba-scheduler-strategy extra_buffer; speculation has them)",
    )
    asynchronous: bool = Field(True, description="schedule step k+1 while step k runs")
    preemption: Literal["recompute", "swap", "none"] = Field(
        "recompute",
        description="how KV of the preempted returns; none: blocks are reserved for all of a request",
    )
    admits_whole: bool = Field(
        default=False,
        description="admit a prompt when the KV blocks of all of it are free; else of its first chunk",
    )
    swap_copies: Literal["whole", "blocks", "groups"] = Field(
        default="whole",
        description="copies of a swap: whole (at the link's rate), blocks (one for each block, layer, key "
        "and value, as vLLM 0), groups (of neighbouring blocks)",
    )
    swap_asynchronous: bool = Field(
        default=False, description="swaps are copied beside steps, not before them"
    )
    swap_keeps: bool = Field(
        default=False, description="host copies are kept: a later swap copies only tokens made since"
    )
    stream_interval: int = Field(1, ge=1, le=2**16, description="tokens in a streamed chunk")
    receive_interval: int = Field(
        1,
        ge=1,
        le=2**16,
        description="decode steps between two looks at the queue of new requests (scheduler-recv-interval)",
    )
    compile_s: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="seconds that a replica's first requests wait for kernels to be compiled or tuned",
    )
    ingest_s: float = Field(
        0.001, ge=0, le=60, description="seconds from the client's send to the engine's queue"
    )
    handoff_s: float = Field(
        0.0,
        ge=0,
        le=60,
        description="seconds from a prefill to a decode replica beside the KV's way: handshake, polls",
    )
