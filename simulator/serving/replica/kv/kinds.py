"""What a deployment can do with KV, as entries of a catalogue: name, rule, source, keys."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import Field

from core.loading import Strict


class KvKind(Strict):
    """One way to keep KV. Its fields are the keys that choose it."""

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]


class Paged(KvKind):
    """Blocks of equal size."""

    name: ClassVar[str] = "paged"
    rule: ClassVar[str] = "blocks of equal size, counted; preempted sequences are computed again or swapped"
    source: ClassVar[str] = "Kwon et al., PagedAttention, SOSP 2023"
    block_tokens: int = Field(default=16, description="options.block_tokens: tokens of a block")


class Prefixes(KvKind):
    """Blocks with a prefix cache."""

    name: ClassVar[str] = "prefix"
    rule: ClassVar[str] = "blocks of equal prefixes are shared, the least recently used evicted first"
    source: ClassVar[str] = "vLLM, SGLang (Zheng et al., arXiv 2312.07104)"
    prefix_caching: bool = Field(default=True, description="options.prefix_caching")


class OwnTiers(KvKind):
    """Tiers, each on a link of its own."""

    name: ClassVar[str] = "tiers"
    rule: ClassVar[str] = "evicted prefixes move to host, SSDs or a pool, and are read at a fixed rate"
    source: ClassVar[str] = "LMCache, Mooncake (Qin et al., arXiv 2407.00079)"
    tiers: str = Field(default="[]", description="tiers: place, gigabytes; without recompute")


class SharedTiers(KvKind):
    """Tiers on shared links."""

    name: ClassVar[str] = "shared-tiers"
    rule: ClassVar[str] = "as tiers; reads and writes share links, read or computed, whichever ends sooner"
    source: ClassVar[str] = "LMCache, Mooncake; vLLM offloading connector (blog of 2026-01-08)"
    recompute: str = Field(default="", description="tiers: share of the tokens read that is computed again")
    block_bytes: str = Field(default="", description="tiers: bytes of one copy")


class Documents(KvKind):
    """Documents anywhere in a prompt."""

    name: ClassVar[str] = "documents"
    rule: ClassVar[str] = "KV of retrieved documents is read from tiers wherever they stand in a prompt"
    source: ClassVar[str] = "Yao et al., CacheBlend, arXiv 2405.16444; Yang et al., APE, arXiv 2502.05431"
    chunks: str = Field(default="", description="workload.chunks: documents, per_prompt, tokens, zipf")


class Unified(KvKind):
    """KV and adapters in one memory."""

    name: ClassVar[str] = "unified"
    rule: ClassVar[str] = "adapters of running sequences take KV blocks, and no others"
    source: ClassVar[str] = "Sheng et al., S-LoRA, arXiv 2311.03285 (unified paging)"
    memory: str = Field(default="", description="adapters.memory: shared")


KINDS: tuple[type[KvKind], ...] = (Paged, Prefixes, OwnTiers, SharedTiers, Documents, Unified)
kv_kinds: Mapping[str, type[KvKind]] = MappingProxyType({kind.name: kind for kind in KINDS})
