"""Parallel layout of a training workload on a cluster: one plan, and arrays of plans.

Degrees follow Megatron-LM. ``tensor x context x data x pipeline`` is the number of devices; expert
parallelism uses the data- and context-parallel ranks. Ranks are laid out in the order tensor,
context, (expert,) data, pipeline, innermost first, unless ``rank_order`` says otherwise.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from core.errors import SHORT_NAMES, InputError
from core.records import record
from simulator.levers import CODED, SHARED, LeverColumns, Levers, Recompute, modules_code, modules_of
from simulator.levers import FULL as FULL
from simulator.levers import SELECTIVE as SELECTIVE
from simulator.levers.overlap_tensor import TensorOverlap
from simulator.state.levels import ShardLevels
from simulator.state.place import Tiers, Update
from simulator.state.policy import PLAIN, POLICY_FIELDS, StatePolicy
from simulator.state.sync import Sync
from simulator.state.wire import Wire

ContextAlgorithm = Literal["ring", "all_gather", "ulysses", "usp", "token-ring"]
RankOrder = Literal["tensor-context-data-pipeline", "tensor-context-pipeline-data"]

Choice = {
    "recompute": get_args(Recompute),
    "context_algorithm": get_args(ContextAlgorithm),
    "rank_order": get_args(RankOrder),
    "overlap_tensor": get_args(TensorOverlap),
    **CODED,
}
"""Allowed words of fields with a choice; arrays of plans hold the index of a word. None is the default of the
framework's release."""

RING, ALL_GATHER, ULYSSES, USP, TOKEN_RING = range(len(Choice["context_algorithm"]))
BACKWARD_OVERLAP, FULL_OVERLAP = (Choice["overlap_tensor"].index(word) for word in ("backward", "full"))
PIPELINE_INSIDE_DATA = Choice["rank_order"].index("tensor-context-pipeline-data")


RARE = ("context_heads",)
"""Fields that output leaves out where they are 0."""

MOST = 2**24
"""Highest value of a degree or count."""


def field_name(name: str) -> str:
    """A plan field by its name or its abbreviation (TP, pp)."""
    return SHORT_NAMES.get(name.lower(), name)


class Plan(Levers):
    """One parallel layout of a training workload, and what its launch script chooses."""

    tensor: int = Field(1, ge=1, le=MOST, description="tensor-parallel ranks")
    pipeline: int = Field(1, ge=1, le=MOST, description="pipeline stages (ranks)")
    virtual_pipeline: int = Field(1, ge=1, le=MOST, description="model chunks on each pipeline rank")
    context: int = Field(1, ge=1, le=MOST, description="context-parallel ranks")
    data: int = Field(
        1, ge=1, le=MOST, description="data-parallel replicas, expert-parallel ranks among them"
    )
    expert: int = Field(1, ge=1, le=MOST, description="expert-parallel ranks")
    expert_tensor: int = Field(1, ge=1, le=MOST, description="tensor-parallel ranks inside one expert")
    micro_batch: int = Field(1, ge=1, le=MOST, description="sequences in a micro batch")
    schedule: str = Field("1f1b", description="pipeline schedule")
    sequence_parallel: bool = Field(
        False, description="shard norms and dropout over the tensor-parallel ranks"
    )
    zero: int = Field(
        0,
        ge=0,
        le=3,
        description="what is sharded over data-parallel ranks: 0 nothing, "
        "1 optimizer state, 2 gradients too, 3 parameters too (FSDP)",
    )
    shard_group: int = Field(
        0,
        ge=0,
        le=MOST,
        description="ranks that share one copy of sharded state; 0: all data-parallel "
        "ranks, fewer: hybrid sharding",
    )
    recompute: Recompute = Field("none", description="activations computed again in the backward pass")
    context_algorithm: ContextAlgorithm = Field(
        "ring",
        description="how context-parallel ranks exchange keys and values; usp: Ulysses over "
        "context_heads ranks, a ring over the others; token-ring: queries one way, outputs the other",
    )
    context_heads: int = Field(
        0,
        ge=0,
        le=MOST,
        description="context-parallel ranks that split heads, under usp; 0: of no other algorithm",
    )
    overlap_gradients: bool = Field(True, description="reduce gradients while the backward pass runs")
    overlap_parameters: bool = Field(True, description="gather parameters while the forward pass runs")
    overlap_tensor: TensorOverlap = Field(
        "backward",
        description="tensor-parallel communication hidden behind "
        "matrix products: nowhere, in the backward pass, everywhere; flux, t3, domino, ladder: "
        "docs/overlap.md",
    )
    overlap_expert: bool = Field(
        False, description="exchange tokens with experts beside the kernels of another micro batch"
    )
    overlap_pipeline: bool = Field(False, description="send activations while the next micro batch computes")
    first_stage_layers: int = Field(
        0, ge=-1, le=MOST, description="layers of the first stage; 0: an even share, -1: none"
    )
    last_stage_layers: int = Field(
        0, ge=-1, le=MOST, description="layers of the last stage; 0: an even share, -1: none"
    )
    rank_order: RankOrder = Field(
        "tensor-context-data-pipeline", description="which ranks are neighbours, innermost first"
    )
    shard: ShardLevels | None = Field(
        None,
        description="level over which each class of state is sharded, beyond `zero` and `shard_group`",
    )
    wire: Wire | None = Field(None, description="formats of gathers, reductions and boundary tensors")
    place: Tiers | None = Field(None, description="shares of each class of state on host and SSDs")
    update: Update | None = Field(None, description="where and when the optimizer runs")
    sync: Sync | None = Field(None, description="steps between exchanges of replicas, and what they exchange")

    @model_validator(mode="before")
    @classmethod
    def _of_system(cls, data: object) -> object:
        """The fields of an offload system that ``place`` names, beneath those that the plan states."""
        if not isinstance(data, Mapping) or not isinstance(data.get("place"), str):
            return data
        from simulator.offload import offload_systems

        try:
            system = offload_systems.get(data["place"])
        except InputError as error:
            raise ValueError(f"place: {error}") from None
        stated = {key: value for key, value in data.items() if key != "place"}
        zero = {} if system.zero is None else {"zero": system.zero}
        return {**zero, "update": system.update, **stated, "place": system.place}

    @model_validator(mode="before")
    @classmethod
    def _by_layers(cls, data: object) -> object:
        """``context_algorithm: {full: ..., linear: ...}`` as the fields of either kind of layer."""
        if not isinstance(data, Mapping) or not isinstance(data.get("context_algorithm"), Mapping):
            return data
        names = {"full": "context_algorithm", "linear": "linear_context"}
        by_layers = data["context_algorithm"]
        if unknown := sorted(set(by_layers) - set(names)):
            raise ValueError(f"context_algorithm: unknown layers {unknown[0]!r}; layers are full and linear")
        stated = {key: value for key, value in data.items() if key != "context_algorithm"}
        if "linear" in by_layers and "linear_context" in stated:
            raise ValueError("context_algorithm: linear and linear_context name the same choice; state one")
        return stated | {names[key]: value for key, value in by_layers.items()}

    @model_validator(mode="after")
    def _consistent(self) -> "Plan":
        if self.shard_group and (self.data * self.context) % self.shard_group:
            raise ValueError(
                f"shard_group {self.shard_group} does not divide data x context = {self.data * self.context}"
            )
        if self.sequence_parallel and self.tensor == 1:
            raise ValueError("sequence_parallel needs tensor > 1")
        if (self.data * self.context * self.tensor) % (self.expert * self.expert_tensor):
            raise ValueError(
                f"expert x expert_tensor = {self.expert * self.expert_tensor} does not divide "
                f"data x context x tensor = {self.data * self.context * self.tensor}"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """All fields; levers, state fields and those of rare algorithms only where they are stated."""
        values = handler(self).items()
        return {name: value for name, value in values if value is not None and (value or name not in RARE)}

    @property
    def policy(self) -> StatePolicy:
        """The plan's state fields."""
        return StatePolicy(*(getattr(self, name) for name in POLICY_FIELDS))

    @property
    def devices(self) -> int:
        """Devices occupied by the plan."""
        return self.tensor * self.context * self.data * self.pipeline

    def describe(self) -> str:
        """The degrees in the field's shorthand, e.g. ``TP8 PP16x2 DP8``."""
        parts = [f"TP{self.tensor}" + ("+SP" if self.sequence_parallel else "")]
        parts.append(
            f"PP{self.pipeline}" + (f"x{self.virtual_pipeline}" if self.virtual_pipeline > 1 else "")
        )
        if self.context > 1:
            degrees = (
                f" {self.context_heads}x{self.context // self.context_heads}" if self.context_heads else ""
            )
            others = "" if self.context_algorithm == "ring" else f"({self.context_algorithm}{degrees})"
            parts.append(f"CP{self.context}{others}")
        if self.expert > 1 or self.expert_tensor > 1:
            parts.append(
                f"EP{self.expert}" + (f"(ETP{self.expert_tensor})" if self.expert_tensor > 1 else "")
            )
        return " ".join([*parts, f"DP{self.data}"])


COLUMNS = tuple(name for name in Plan.model_fields if name not in (*POLICY_FIELDS, *SHARED))
"""Plan fields that arrays of plans hold one by one; the others are in ``Plans.policies`` and ``shared``."""

FIXABLE = (*COLUMNS, *SHARED)
"""Plan fields that a search can hold at a value."""


NO_LEVERS = Levers()
"""Levers that are all left to the framework."""


@record()
class Plans(LeverColumns):
    """Many plans as arrays of one length: the form that every cost function reads.

    A field that holds a word in ``Plan`` holds its index in ``Choice`` here; ``schedule`` holds an
    index into ``schedule_names``, ``policy`` one into ``policies``, ``recompute_modules`` a ``modules_code``.
    ``shared`` holds the levers that all plans share.
    """

    tensor: np.ndarray
    pipeline: np.ndarray
    virtual_pipeline: np.ndarray
    context: np.ndarray
    data: np.ndarray
    expert: np.ndarray
    expert_tensor: np.ndarray
    micro_batch: np.ndarray
    schedule: np.ndarray
    sequence_parallel: np.ndarray
    zero: np.ndarray
    shard_group: np.ndarray
    recompute: np.ndarray
    context_algorithm: np.ndarray
    overlap_gradients: np.ndarray
    overlap_parameters: np.ndarray
    overlap_tensor: np.ndarray
    overlap_expert: np.ndarray
    overlap_pipeline: np.ndarray
    first_stage_layers: np.ndarray
    last_stage_layers: np.ndarray
    rank_order: np.ndarray
    schedule_names: tuple[str, ...] = ("1f1b",)
    policy: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    policies: tuple[StatePolicy, ...] = (PLAIN,)
    shared: Levers = NO_LEVERS
    context_heads: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        """Without policies, all plans have the first one; without head ranks, none."""
        if len(self.context_heads) != len(self.tensor):
            self.context_heads = np.zeros(len(self.tensor), dtype=np.int64)  # type: ignore[misc]
        if len(self.policy) != len(self.tensor):
            self.policy = np.zeros(len(self.tensor), dtype=np.int64)  # type: ignore[misc]

    @classmethod
    def of(cls, plans: Plan | Iterable[Plan]) -> "Plans":
        """Turn one plan, or several, into arrays.

        Raises:
            ValueError: plans that differ in a lever of ``SHARED``.
        """
        listed = [plans] if isinstance(plans, Plan) else list(plans)
        names = tuple(dict.fromkeys(p.schedule for p in listed))
        columns = {}
        for name in COLUMNS:
            values = [getattr(p, name) for p in listed]
            if name == "recompute_modules":
                columns[name] = np.array([modules_code(value) for value in values], dtype=np.int64)
                continue
            words = names if name == "schedule" else Choice.get(name)
            columns[name] = np.array([words.index(v) for v in values] if words else values)
        policies = tuple(dict.fromkeys(p.policy for p in listed))
        columns["policy"] = np.array([policies.index(p.policy) for p in listed], dtype=np.int64)
        shared = [{name: getattr(p, name) for name in SHARED} for p in listed] or [{}]
        if any(other != shared[0] for other in shared):
            raise ValueError(f"plans of one call differ in one of {', '.join(SHARED)}")
        stated = any(value is not None for value in shared[0].values())
        common = Levers(**shared[0]) if stated else NO_LEVERS
        return cls(**columns, schedule_names=names, policies=policies or (PLAIN,), shared=common)

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, index: np.ndarray | slice) -> "Plans":
        """The plans selected by a mask, an index array or a slice."""
        columns = {name: getattr(self, name)[index] for name in ARRAYS}
        return Plans(**columns, **{name: getattr(self, name) for name in TABLES})

    def plan(self, index: int) -> Plan:
        """One plan as a ``Plan``."""
        values: dict[str, Any] = {name: getattr(self.shared, name) for name in SHARED}
        for name in COLUMNS:
            value = getattr(self, name)[index]
            if name == "recompute_modules":
                values[name] = modules_of(int(value))
                continue
            words = self.schedule_names if name == "schedule" else Choice.get(name)
            switch = Plan.model_fields[name].annotation is bool
            values[name] = words[int(value)] if words else (bool(value) if switch else int(value))
        return Plan(**values, **self.policies[int(self.policy[index])]._asdict())

    def __iter__(self) -> Iterator[Plan]:
        return (self.plan(i) for i in range(len(self)))

    @property
    def devices(self) -> np.ndarray:
        """Devices occupied by every plan."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def head_ranks(self) -> np.ndarray:
        """Context-parallel ranks that split heads."""
        return self.head_ranks_of(self.context)

    def head_ranks_of(self, context: np.ndarray) -> np.ndarray:
        """Ranks that split heads in groups of ``context`` ranks, shape (plans,)."""
        heads = np.gcd(np.maximum(self.context_heads, 1), context.astype(np.int64))
        return np.where(
            self.context_algorithm == ULYSSES, context, np.where(self.context_algorithm == USP, heads, 1)
        )

    @property
    def pipeline_stride(self) -> np.ndarray:
        """Devices between neighbouring pipeline ranks."""
        inside = np.where(self.rank_order == PIPELINE_INSIDE_DATA, 1, self.data)
        return self.tensor * self.context * inside

    def unique(self, *names: str, values: Iterable[np.ndarray] = ()) -> "tuple[Plans, np.ndarray]":
        """Distinct plans by the named fields and ``values``, and the index of every plan's distinct one.

        A cost that depends on these only is computed once per combination.

        Args:
            names: plan fields.
            values: further arrays of shape (plans,).
        """
        first, inverse = self.distinct(*names, values=values)
        return self if len(self) < 2 else self.take(first), inverse

    def distinct(self, *names: str, values: Iterable[np.ndarray] = ()) -> tuple[np.ndarray, np.ndarray]:
        """The first of each distinct plan, and the index of every plan's distinct one, as in ``unique``."""
        count = len(self)
        if count < 2:
            return np.arange(count), np.zeros(count, dtype=np.int64)
        keys, span_product = np.zeros(count, dtype=np.int64), 1
        columns = [getattr(self, name) for name in names]
        for column in columns + [np.unique(value, return_inverse=True)[1] for value in values]:
            low = int(column.min())
            span = int(column.max()) - low + 1
            if span == 1:
                continue
            if span_product * span > TABLE:
                distinct, keys = numbered(keys, span_product)
                span_product = len(distinct)
            keys *= span
            keys += column
            keys -= low
            span_product *= span
        distinct, inverse = numbered(keys, span_product)
        first = np.empty(len(distinct), dtype=np.int64)
        first[inverse[::-1]] = np.arange(count - 1, -1, -1)
        return first, inverse

    @cached_property
    def by_schedule(self) -> list[tuple[str, np.ndarray | slice]]:
        """The schedules in use, with the mask of their plans."""
        numbers = range(len(self.schedule_names))
        if len(self) and (self.schedule == self.schedule[0]).all():
            return [(self.schedule_names[int(self.schedule[0])], slice(None))]
        rows = ((self.schedule_names[number], np.flatnonzero(self.schedule == number)) for number in numbers)
        return [(name, members) for name, members in rows if len(members)]


TABLES = ("schedule_names", "policies", "shared")
"""Fields of ``Plans`` that are no columns: what columns hold indices into, and what all plans share."""

ARRAYS = tuple(each.name for each in fields(Plans) if each.name not in TABLES)


TABLE = 1 << 18
"""Largest range of keys numbered by a table; keys of larger ranges are sorted."""


def numbered(keys: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys in their order, and every key's place; keys are at least 0 and below ``limit``."""
    if limit > TABLE:
        return np.unique(keys, return_inverse=True)
    seen = np.zeros(limit, dtype=bool)
    seen[keys] = True
    distinct = np.flatnonzero(seen)
    number = np.empty(limit, dtype=np.int64)
    number[distinct] = np.arange(len(distinct))
    return distinct, number[keys]


def taken(values: np.ndarray, rows: np.ndarray | slice) -> np.ndarray:
    """The values of chosen plans, shape (..., chosen), from those of all, shape (..., plans).

    ``take`` is five times as fast as an index array beside a slice.
    """
    return values if isinstance(rows, slice) else np.take(values, rows, axis=-1)


def put(values: np.ndarray, rows: np.ndarray | slice, new: np.ndarray) -> None:
    """Set the values of chosen plans, shape (rows, plans); row by row it takes a quarter of the time."""
    for row, new_row in zip(values, new, strict=True):
        row[rows] = new_row


def concatenate(parts: list[Plans]) -> Plans:
    """Plans that share ``TABLES``, one after another."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
    return Plans(**columns, **{name: getattr(parts[0], name) for name in TABLES})
