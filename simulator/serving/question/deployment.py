"""Serving deployment: pools of replicas, their degrees, number formats, engine and policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from core.errors import InputError, UnknownNameError, shown
from core.loading import Strict, build
from core.quantities import Few
from hwmodels.grids import grids
from simulator.models import Model
from simulator.models.parts import CheckpointFormat
from simulator.serving.question.adapters import Adapters
from simulator.serving.question.failures import Drain, Failures
from simulator.serving.question.finetuning import FineTuning
from simulator.serving.question.overlap import StepOverlap
from simulator.serving.question.resizes import Resize
from simulator.serving.question.speculation import Speculation
from simulator.serving.question.start import StagedStart
from simulator.serving.question.state import KvState
from simulator.serving.question.stream import WeightStream
from simulator.serving.question.tiers import Tier
from simulator.site import ServerSite

Role = Literal["mixed", "prefill", "decode", "attention", "encoder"]
NO_GRAPHS = 1
"""Largest graph of a server that captures none (``--enforce-eager``)."""
ASIDE = ("attention", "encoder")
"""Roles of pools that take no requests from the router."""
WeightFormat = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4", "fp4"]
ActivationFormat = Literal["fp32", "fp16", "bf16", "fp8", "int8", "fp4"]
KvFormat = Literal["fp32", "fp16", "bf16", "fp8", "int8", "fp4"]


def _name_or_mapping(value: object) -> object:
    if isinstance(value, str | Mapping) and value:
        return value
    raise ValueError("a catalogue name, a path or a mapping is needed")


def _none_or_reference(value: object) -> object:
    return None if value is None else _name_or_mapping(value)


def checkpoint_of(model: Model) -> CheckpointFormat:
    """The format of a model's checkpoint.

    Raises:
        InputError: it is not known.
    """
    if model.checkpoint_problem:
        hint = "state the format with `weights` of the deployment or --fix weights="
        raise InputError(f"{model.checkpoint_problem}; {hint}", model.name)
    return model.checkpoint


class Pool(Strict):
    """Replicas of one kind.

    A replica occupies ``tensor x data x pipeline`` devices. ``data`` counts data-parallel attention ranks
    inside a replica: they hold different requests, share the experts, and step together. SGLang's
    ``--tp 8 --dp 8 --enable-dp-attention`` is ``tensor: 1, data: 8``.
    """

    name: str = Field("", description="of the pool in reports; default: its role")
    role: Role = Field("mixed", description="phases that the pool's replicas run")
    model: Annotated[Any, AfterValidator(_none_or_reference)] = Field(
        None,
        description="of the pool: catalogue name, path or mapping; default: the scenario's",
    )
    cluster: Annotated[Any, AfterValidator(_none_or_reference)] = Field(
        None,
        description="nodes of the pool: catalogue name, path or mapping; default: the scenario's cluster",
    )
    replicas: Few = Field(1, description="replicas at the start")
    tensor: Few = Field(1, description="tensor-parallel ranks of attention and dense MLPs")
    data: Few = Field(1, description="data-parallel attention ranks of one replica")
    pipeline: Few = Field(1, description="pipeline stages")
    expert: Few = Field(1, description="expert-parallel ranks")
    exchange: Literal["all-gather", "deepep"] | None = Field(
        None,
        description="how tokens reach experts of other attention ranks: gathered on every rank, or sent to "
        "the ranks of their experts (`deepep`); default: the faster one in each step",
    )
    expert_tensor: int = Field(
        0, ge=0, le=4096, description="tensor-parallel ranks inside one expert; 0: the ranks that remain"
    )
    weights: WeightFormat | None = Field(
        None, description="number format of the weights; default: the model's checkpoint's"
    )
    activations: ActivationFormat | None = Field(
        None, description="number format of the matrix products' inputs; default: as the engine pairs them"
    )
    kv: KvFormat | None = Field(None, description="number format of the KV cache; default: 16 bits")
    engine: Annotated[Any, AfterValidator(_name_or_mapping)] = Field(
        "vllm-0.19", description="engine preset: catalogue name, path or mapping"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="options of the engine set to other values (`token_budget: 512`)"
    )
    clock_mhz: float | None = Field(
        None, gt=0, le=1e4, description="clock at which the devices are locked; default: as high as they go"
    )
    largest_graph: int | None = Field(
        None,
        ge=1,
        le=2**16,
        description="most tokens of a rank's decode step that is in a captured graph; default: the engine's",
    )
    graph_sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=2**16)], ...], Field(strict=False)] = Field(
        (),
        max_length=256,
        description="captured sizes of decode steps (`[1, 2, 4, 8]`); default: the engine's",
    )
    expert_kernels: Literal["triton", "marlin"] | None = Field(
        None,
        description="kernels of experts in vLLM (`--moe-backend`): triton (on Blackwell, and of MXFP4 on "
        "Hopper) or marlin (of MXFP4 on Hopper); default: the engine's",
    )
    product_kernels: Literal["flashinfer"] | None = Field(
        None,
        description="kernels of block-scaled fp8 products in SGLang on Blackwell (`--fp8-gemm-backend`); "
        "default: DeepGEMM",
    )
    all_reduce: Literal["star"] | None = Field(
        default=None,
        description="star: tensor-parallel ranks add up through one of them; default: as engine and NCCL do",
    )
    power_cap_w: float | None = Field(
        None, gt=0, le=1e5, description="power limit of one device; default: the device's own"
    )
    speculation: Speculation | None = Field(
        None, description="speculative decoding (`kind`, `draft`, `tokens`, `acceptance`)"
    )
    stream: WeightStream | None = Field(
        None, description="layers that are read in every step (`from`, `resident`, `window`, `prefetch`)"
    )
    overlap: StepOverlap | None = Field(
        None, description="what runs beside what in a step (`kind`, `options`; `show overlaps`)"
    )
    state: KvState | None = Field(
        default=None,
        description="where KV of decodes lives and how much of it is read (`kind`, `options`; `show states`)",
    )
    finetuning: FineTuning | None = Field(
        default=None, description="fine-tuning tokens in the slack of steps (`tpot`, `length`, `kept`)"
    )
    scaler: str = Field("fixed", description="policy that adds and removes replicas")
    scaler_options: dict[str, Any] = Field(default_factory=dict, description="parameters of the scaler")
    start: StagedStart | None = Field(
        None, description="stages of a replica's start; default: the scaler's and the failures' own seconds"
    )
    site: ServerSite | None = Field(
        None, description="factors of a server that `learn` found; the scenario's key `site` sets it"
    )

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.tensor * self.data * self.pipeline

    def of(self, model: Model) -> Pool:
        """The pool with the formats of the model's checkpoint, where it states none.

        Raises:
            InputError: the checkpoint's format is not known.
        """
        update: dict[str, Any] = {} if self.weights else {"weights": checkpoint_of(model)}
        if self.kv is None and model.checkpoint_kv:
            update["kv"] = model.checkpoint_kv
        return self.model_copy(update=update) if update else self

    @property
    def stored(self) -> str:
        """Number format of the weights; 16 bits where neither pool nor model stated one."""
        return self.weights or "bf16"

    @property
    def experts_cut(self) -> int:
        """Tensor-parallel ranks inside one expert."""
        return self.expert_tensor or max(self.tensor * self.data // self.expert, 1)

    @model_validator(mode="after")
    def _graphs_once(self) -> Pool:
        if self.graph_sizes and self.largest_graph:
            raise ValueError("graph_sizes and largest_graph: give one of them")
        return self

    @model_validator(mode="after")
    def _ranks_fit(self) -> Pool:
        ranks = self.tensor * self.data
        if self.expert * self.experts_cut != ranks and self.expert > 1:
            raise ValueError(
                f"expert x expert_tensor ({self.expert} x {self.experts_cut}) must be tensor x data ({ranks})"
            )
        return self


class Deployment(Pool):
    """Pools of replicas and the policies between them.

    The deployment's own pool fields are the defaults of its pools; without ``pools`` it is one pool.
    """

    pools: list[dict[str, Any]] = Field(
        default_factory=list, description="pools, each with the fields that differ from the deployment's"
    )
    router: str = Field("round-robin", description="policy that picks the replica of a request")
    router_options: dict[str, Any] = Field(default_factory=dict, description="parameters of the router")
    migrate: dict[str, Any] | None = Field(
        default=None,
        description="policy that moves running sequences (`kind`, `interval`, ...; also as `router.migrate`)",
    )
    transfer: Literal["layer-wise", "whole"] = Field(
        "layer-wise", description="how KV goes from prefill to decode replicas"
    )
    power_policy: str | None = Field(
        None, description="policy that caps clocks under a power budget of all replicas"
    )
    power_policy_options: dict[str, Any] = Field(
        default_factory=dict, description="parameters of the power policy"
    )
    tiers: list[Tier] = Field(
        default_factory=list, description="tiers of KV below device memory, the fastest first"
    )
    recompute: float = Field(
        0.0, ge=0, le=1, description="share of the tokens read from tiers that is computed again"
    )
    adapters: Adapters | None = Field(
        None, description="low-rank adapters of the requests (`count`, `rank`, `popularity`, `memory`)"
    )
    region: str | None = Field(
        None, description="region whose grid supplies the energy: CO2 beside it (`hwmodels/grids.yaml`)"
    )
    failures: Failures | None = Field(None, description="failures of replicas and their return")
    resizes: list[Resize] = Field(
        default_factory=list,
        description="ranks that join or leave a replica (`time`, `replica`, `data`, `live`, `pause`)",
    )
    drains: list[Drain] = Field(
        default_factory=list,
        description="replicas that take no requests for a while (`time`, `replica`, `until`)",
    )

    @field_validator("region")
    @classmethod
    def _known_region(cls, region: str | None) -> str | None:
        """A region of the table of grids."""
        if region is not None:
            try:
                grids().get(region)
            except UnknownNameError as error:
                raise ValueError(error.problem) from None
        return region

    @model_validator(mode="before")
    @classmethod
    def _router_in_one(cls, data: Any) -> Any:
        """`router: {kind, migrate, ...}` names the router, its parameters and the migration together."""
        router = data.get("router") if isinstance(data, Mapping) else None
        if not isinstance(router, Mapping):
            return data
        if not isinstance(router.get("kind"), str):
            raise ValueError("router: a mapping needs the key 'kind', the router's name")
        options = {key: value for key, value in router.items() if key not in ("kind", "migrate")}
        if options and data.get("router_options"):
            raise ValueError("router_options: router states parameters already; give one of them")
        if "migrate" in router and data.get("migrate"):
            raise ValueError("migrate: router states it already; give one of them")
        options = options or data.get("router_options") or {}
        migrate = router["migrate"] if "migrate" in router else data.get("migrate")
        return {**data, "router": router["kind"], "router_options": options, "migrate": migrate}

    def joining(self, pools: Sequence[Pool]) -> int:
        """Devices that join replicas of the pools; the most at any time."""
        ranks = [pool for pool in pools if pool.role not in ASIDE for _ in range(pool.replicas)]
        largest = {resize.replica: 0 for resize in self.resizes if resize.replica < len(ranks)}
        for resize in self.resizes:
            if resize.replica in largest:
                pool = ranks[resize.replica]
                joining = pool.tensor * (resize.data - pool.data)
                largest[resize.replica] = max(largest[resize.replica], joining)
        return sum(largest.values())

    @property
    def shares_links(self) -> bool:
        """Whether tiers share links with each other, and writes to them take time."""
        return any(tier.recompute is not None for tier in self.tiers)


def pools_of(deployment: Deployment, where: str) -> list[Pool]:
    """The pools of a deployment; itself where it lists none.

    Raises:
        InputError: a wrong key or value in one of them.
    """
    defaults = {name: getattr(deployment, name) for name in Pool.model_fields}
    if not deployment.pools:
        return [Pool(**defaults)]
    pools = []
    for index, cells in enumerate(deployment.pools):
        pool_options = cells.get("options") or {}
        if not isinstance(pool_options, Mapping):
            raise InputError(
                f"a mapping is needed, found {shown(pool_options)}", f"{where}.pools.{index}.options"
            )
        options = {**deployment.options, **pool_options}
        pools.append(build(Pool, {**defaults, **cells, "options": options}, f"{where}.pools.{index}"))
    return pools
