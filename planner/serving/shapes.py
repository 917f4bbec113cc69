"""Shapes of a replica: degrees and number formats, and the rules that remove impossible ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.errors import InfeasibleError
from planner.serving.attention_sides import AttentionSide
from planner.serving.drafts import sourced, usual_drafts
from planner.serving.offers import Offer
from planner.serving.question import FORMATS, ServingQuestion
from planner.serving.shared_pricing import shared_pricing
from simulator.serving.adapters import adapted_table, with_adapters
from simulator.serving.adapters.steps import AdapterSteps
from simulator.serving.encoders import EncoderTimes, check_encoder, encoder_table
from simulator.serving.question.deployment import Pool, checkpoint_of
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.speculation import Speculation
from simulator.serving.state.route import Route
from simulator.serving.steps.capped import iteration_table
from simulator.serving.steps.costs import MOST_CONTEXT, allowed_options, engine_of, options_of, speculating
from simulator.serving.steps.memory import check_fits, memory
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_times import ReplicaCosts
from simulator.serving.steps.table import IterationTable
from simulator.serving.steps.weight_only import NARROW, wide_format


@dataclass(frozen=True, eq=False)
class ReplicaShape:
    """One kind of replica that fits: its pool, engine options, step times and KV."""

    pool: Pool
    options: EngineOptions
    table: IterationTable
    kv_tokens: int
    """KV tokens of one attention rank."""
    kv_token_bytes: float
    """KV of one token over a replica's devices."""
    offer: Offer
    """Its GPU type."""
    named: bool = False
    """Whether a description names the GPU type."""
    plain: IterationTable | None = None
    """Step times without adapters, where requests have some."""
    tower: EncoderTimes | None = None
    """Times of the vision tower, where requests have images."""
    encoder: IterationTable | None = None
    """Step times of the encoder that the model's decoder attends to."""
    attention: AttentionSide | None = None
    """Devices that have its KV and compute its decodes' attention, where it has none."""

    @property
    def devices(self) -> int:
        """Devices of a replica, those of its attention counted."""
        return self.pool.devices + (self.attention.devices if self.attention else 0)

    @property
    def kv_room(self) -> int:
        """KV tokens of one attention rank; of a replica whose attention is elsewhere, of all of it."""
        return self.attention.kv_tokens if self.attention else self.kv_tokens

    @property
    def tabled(self) -> bool:
        """Whether its steps depend on its table, its overlap and its drafts alone."""
        beside = self.plain, self.tower, self.encoder, self.attention
        return all(part is None for part in beside)

    @property
    def idle_watts_beside(self) -> float:
        """Power of its attention's devices, which count as idle, W."""
        return self.attention.devices * self.offer.cluster.device.idle_watts if self.attention else 0.0

    @property
    def most_replicas(self) -> int:
        """Replicas that the devices of its type hold."""
        return self.offer.devices // self.devices

    @property
    def nic_bandwidth(self) -> float:
        """Payload of the NICs of a replica on one node, or of one of its nodes, B/s."""
        cluster = self.offer.cluster
        return cluster.rates.sends(min(self.devices, cluster.devices_per_node))

    @cached_property
    def _links(self) -> dict[tuple[int, int], float]:
        """What `link_bandwidth` has found, by its arguments."""
        return {}

    def link_bandwidth(self, devices: int, receivers: int | None = None) -> float:
        """Payload of the slowest route between two replicas on so many devices, B/s.

        Args:
            devices: that the question may use.
            receivers: devices of the other replica; by default as many as this one has.
        """
        ends = receivers or self.devices
        if (devices, ends) not in self._links:
            self._links[devices, ends] = self._slowest_route(min(devices, self.offer.devices), ends)
        return self._links[devices, ends]

    def _slowest_route(self, devices: int, receivers: int) -> float:
        cluster = self.offer.cluster
        inside = min(devices, cluster.devices_per_node)
        others = [*range(self.devices, inside - self.devices + 1, self.devices), devices - self.devices]
        if others[-1] < self.devices:
            return self.nic_bandwidth
        return min(Route.between(cluster, 0, self.devices, other, receivers).bandwidth for other in others)

    def link_to(self, decode: ReplicaShape, devices: int) -> float:
        """Payload of the link to a decode replica, B/s: between GPU types, that of their NICs."""
        if decode.offer.name != self.offer.name:
            return min(self.nic_bandwidth, decode.nic_bandwidth)
        return self.link_bandwidth(devices, min(self.devices, decode.devices))

    def describe(self) -> str:
        """Degrees and formats in the field's shorthand."""
        pool = self.pool
        parts = [*([self.offer.name] if self.named else []), f"TP{pool.tensor}"]
        parts += [f"DP{pool.data}"] if pool.data > 1 else []
        parts += [f"PP{pool.pipeline}"] if pool.pipeline > 1 else []
        parts += [f"EP{pool.expert}"] if pool.expert > 1 else []
        parts += [pool.stored, *([f"KV {pool.kv}"] if pool.kv else [])]
        parts += [drafts_words(pool.speculation)] if pool.speculation else []
        side = self.attention
        parts += [f"A:F {side.ratio(self.pool.devices)} {side.batches} micro batches"] if side else []
        parts += ["DeepEP"] if pool.exchange == "deepep" else []
        parts += [f"overlap {pool.overlap.kind}"] if pool.overlap else []
        parts += [f"graphs to {pool.largest_graph:,}"] if pool.largest_graph else []
        parts += [f"{pool.clock_mhz:,.0f} MHz"] if pool.clock_mhz else []
        return " ".join([*parts, *([f"{pool.power_cap_w:,.0f} W"] if pool.power_cap_w else [])])


def drafts_words(drafts: Speculation) -> str:
    """Drafts in a word, as `--speculate` takes them: ``mtp:3``."""
    return f"{drafts.kind}:{drafts.tokens}"


@dataclass(frozen=True)
class ShapeRule:
    """A reason to reject a shape.

    Attributes:
        name: label in reports.
        why: what must hold.
        keeps: whether a choice of fields stays.
    """

    name: str
    why: str
    keeps: Callable[[ServingQuestion, Mapping[str, Any]], bool]


def _ranks(fields: Mapping[str, Any]) -> int:
    return fields["tensor"] * fields["data"]


def _experts(question: ServingQuestion, fields: Mapping[str, Any]) -> bool:
    moe, expert = question.model.moe, fields["expert"]
    if moe is None:
        return expert == 1 and fields["data"] == 1
    return moe.experts % expert == 0 and (expert in (1, _ranks(fields)))


def _format(question: ServingQuestion, fields: Mapping[str, Any]) -> bool:
    needed = NARROW.get(fields["weights"], ())
    peaks = question.cluster.device.peak_flops
    return (
        not needed
        or any(name in peaks for name in needed)
        or fields["weights"] in (question.fix.get("weights"), question.model.checkpoint)
    )


def _in_domain(question: ServingQuestion, fields: Mapping[str, Any]) -> bool:
    ranks = fields["tensor"] if fields["expert"] == _ranks(fields) else _ranks(fields)
    return ranks <= question.cluster.domain or "tensor" in question.fix


RULES: tuple[ShapeRule, ...] = (
    ShapeRule(
        "devices",
        "a replica must not need more devices than there are",
        lambda question, fields: _ranks(fields) * fields["pipeline"] <= question.devices,
    ),
    ShapeRule(
        "nvlink_domain",
        "tensor ranks stay inside an NVLink domain; data ranks too, unless experts are sharded",
        _in_domain,
    ),
    ShapeRule(
        "heads",
        "tensor must divide the attention heads",
        lambda question, fields: question.model.heads % fields["tensor"] == 0,
    ),
    ShapeRule(
        "layers",
        "pipeline must not exceed the layers",
        lambda question, fields: fields["pipeline"] <= question.model.layers,
    ),
    ShapeRule("experts", "expert is 1 or all ranks, and divides the experts; data needs experts", _experts),
    ShapeRule(
        "pipeline",
        "pipeline stages with data-parallel attention are not modelled",
        lambda question, fields: fields["pipeline"] == 1 or fields["data"] == 1,
    ),
    ShapeRule(
        "encoder",
        "a decoder with an encoder is modelled without pipeline stages",
        lambda question, fields: fields["pipeline"] == 1 or question.model.encoder is None,
    ),
    ShapeRule("format", "the device must compute in a format that is not the checkpoint's", _format),
)
MEMORY = ShapeRule("memory", "weights and the KV of one request must fit", lambda question, fields: True)


def _powers(largest: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(max(largest, 1).bit_length()) if 2**power <= largest)


CLOCKS = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Clocks tried for least energy, over the one of the peaks."""
CLOCK_STEP = 15.0
"""Step between lockable clocks, MHz."""


def _clocks(question: ServingQuestion) -> tuple[float | None, ...]:
    """Clocks to try: lower ones only where energy is asked for, since they make nothing faster."""
    highest = 1e-6 * question.cluster.device.clock_hz
    if question.objective != "energy" or not highest or "power_cap_w" in question.fix:
        return (None,)
    return (None, *(CLOCK_STEP * round(share * highest / CLOCK_STEP) for share in CLOCKS))


def _stored(question: ServingQuestion) -> str:
    """The format of the checkpoint; of 16 bits, the one that the device computes in."""
    stored = checkpoint_of(question.model)
    return wide_format(question.cluster.device.peak_flops) if stored == "bf16" else stored


VALUES: Mapping[str, Callable[[ServingQuestion], tuple[Any, ...]]] = MappingProxyType(
    {
        "tensor": lambda question: _powers(question.devices),
        "data": lambda question: _powers(question.devices) if question.model.moe else (1,),
        "pipeline": lambda question: _powers(min(question.devices, 8)),
        "expert": lambda question: _powers(question.devices) if question.model.moe else (1,),
        "weights": lambda question: (_stored(question),),
        "kv": lambda question: (question.model.checkpoint_kv,),
        "speculation": lambda question: usual_drafts(question.model, question.engine),
        "clock_mhz": lambda question: _clocks(question),
        "power_cap_w": lambda question: (None,),
    }
)
"""Values of each field of a shape, the simplest first."""


def _formats(fixed: Any) -> tuple[Any, ...]:
    """The number formats to try: one, or several as ``bf16,fp8``."""
    return (
        tuple(dict.fromkeys(part.strip() for part in fixed.split(",")))
        if isinstance(fixed, str)
        else (fixed,)
    )


def choices(question: ServingQuestion) -> Iterator[dict[str, Any]]:
    """Every choice of fields that the constraints leave."""
    allowed = []
    for name, values in VALUES.items():
        tried = values(question)
        if name in question.fix:
            tried = _formats(question.fix[name]) if name in FORMATS else (question.fix[name],)
        elif name in question.limit:
            largest = question.limit[name]
            tried = tuple(value for value in tried if value is not None and value <= largest) or (largest,)
        if name == "speculation":
            tried = tuple(sourced(drafts, question.model) for drafts in tried)
        allowed.append(tried)
    for values in product(*allowed):
        yield dict(zip(VALUES, values, strict=True))


def one_shape(
    question: ServingQuestion, fields: Mapping[str, Any], tables: dict[tuple[Any, ...], IterationTable]
) -> Iterator[ReplicaShape]:
    """The one shape of a choice of fields; raises as `make_shape`."""
    yield make_shape(question, fields, tables)


def shapes(
    question: ServingQuestion, removed: Counter[str], each: Callable[..., Iterator[ReplicaShape]] = one_shape
) -> Iterator[ReplicaShape]:
    """Every shape of one GPU type that the rules keep; ``removed`` counts the others by rule.

    Args:
        question: the question.
        removed: receives the counts.
        each: makes the shapes of a choice of fields.
    """
    tables = shared_pricing(question).tables
    for rule in (*RULES, MEMORY):
        removed.setdefault(rule.name, 0)
    for fields in choices(question):
        broken = next((rule for rule in RULES if not rule.keeps(question, fields)), None)
        if broken is not None:
            removed[broken.name] += 1
            continue
        try:
            yield from each(question, fields, tables)
        except InfeasibleError:
            removed[MEMORY.name] += 1


def nothing_fits(question: ServingQuestion, removed: Mapping[str, int]) -> InfeasibleError:
    """The error of a question without a shape: choices by rule, and what the widest replica lacks."""
    whys = {rule.name: rule.why for rule in (*RULES, MEMORY)}
    words = "; ".join(f"{count} by {name} ({whys[name]})" for name, count in removed.items() if count)
    message = (
        f"{question.model.name} fits no replica of up to {question.devices} "
        f"{question.cluster.device.name}: choices removed: {words}"
    )
    large = [fields for fields in choices(question) if all(rule.keeps(question, fields) for rule in RULES)]
    if not large:
        return InfeasibleError(message)
    try:
        make_shape(question, max(large, key=lambda fields: _ranks(fields) * fields["pipeline"]))
    except InfeasibleError as error:
        return InfeasibleError(f"{message}. Widest replica: {error}")
    return InfeasibleError(message)


def _budget(question: ServingQuestion, options: EngineOptions) -> int:
    """Most tokens of a step that are tried."""
    return max(options.token_budget, int(question.fix.get("token_budget", 0)))


def rank_key(question: ServingQuestion, pool: Pool, options: EngineOptions) -> tuple[Any, ...]:
    """What the products of a replica's ranks depend on, on one GPU type."""
    clocks = pool.clock_mhz, pool.power_cap_w
    return pool.tensor, pool.weights, *clocks, _budget(question, options), options.max_sequences


def make_shape(
    question: ServingQuestion,
    fields: Mapping[str, Any],
    tables: dict[tuple[Any, ...], IterationTable] | None = None,
    like: IterationTable | None = None,
) -> ReplicaShape:
    """Price one shape.

    Args:
        question: the question.
        fields: degrees and formats.
        tables: tables by `rank_key`, and with what attention and experts depend on beside it; shared times
            are reused, and a new table is added. By default those of `shared_pricing`.
        like: table whose shared times are reused: of the same ranks, formats and limits.

    Raises:
        InfeasibleError: weights and the KV of one request do not fit.
    """
    pool = question.pool(**fields)
    engine = engine_of(pool.engine, Path(), "engine")
    options = options_of(pool, question.cluster.device)
    options = allowed_options(options, question.model, question.cluster, pool, engine)
    price = StepPrice(question.model, question.cluster, pool, engine)
    budget = _budget(question, options)
    footprint = memory(price, budget, options.max_sequences, options.memory_share, options.block_tokens)
    check_fits(price, footprint)
    longest = question.prompt + question.output
    if footprint.kv_tokens < longest:
        raise InfeasibleError(
            f"KV of {footprint.kv_tokens:,} tokens is less than a request of {longest:,.0f}"
        )
    context = min(question.model.longest_request, MOST_CONTEXT, int(4 * longest))
    chunk = ceil(longest)
    # Attention ranks of SGLang share the budget: tables of other ranks have other limits.
    ranked = rank_key(question, pool, options)
    sharded = (*ranked, pool.kv, context, chunk)
    spread = (*ranked, pool.data, pool.expert, pool.exchange, price.verified, pool.largest_graph)
    same = (*sharded, *spread, pool.pipeline)
    tables = shared_pricing(question).tables if tables is None else tables
    table = tables.get(same)
    if table is None:
        shared = like or tables.get(sharded), tables.get(ranked), tables.get(spread)
        table = iteration_table(price, budget, options.max_sequences, context, chunk, *shared)
    for key in (ranked, sharded, spread, same):
        tables.setdefault(key, table)
    token = footprint.kv_token * pool.tensor * pool.pipeline
    offer = question.types[0]
    kv_tokens = footprint.kv_tokens
    if pool.speculation is not None:
        alone = ReplicaCosts(table, footprint.kv_blocks, token, footprint.weights, 0.0, 0.0)
        drafting = (None, question.model, question.cluster, pool, options, price.engine)
        kv_tokens = speculating(alone, pool.speculation, *drafting).kv_blocks * options.block_tokens
        if kv_tokens < longest:
            raise InfeasibleError(f"KV of {kv_tokens:,} tokens is less than a request of {longest:,.0f}")
    shape = ReplicaShape(pool, options, table, kv_tokens, token, offer, question.named)
    if question.pictures is not None:
        tower = EncoderTimes(question.pictures.tower, question.model, question.cluster, pool, engine)
        shape = replace(shape, tower=tower)
    if question.model.encoder is not None:
        check_encoder(question.model, pool, engine, "--fix")
        encoder = encoder_table(question.model, question.cluster, pool, engine, budget)
        shape = replace(shape, encoder=encoder)
    return shape if question.adapters is None else _adapted(question, shape, footprint.weights, longest)


def _adapted(question: ServingQuestion, shape: ReplicaShape, weights: float, longest: float) -> ReplicaShape:
    """A shape that serves the question's adapters: longer steps, less KV.

    Raises:
        InfeasibleError: adapters leave too little KV for a request.
    """
    adapters, pool, options = question.adapters, shape.pool, shape.options
    if adapters is None:
        return shape
    blocks = shape.kv_tokens // options.block_tokens
    costs = ReplicaCosts(shape.table, blocks, shape.kv_token_bytes, weights, 0.0, 0.0)
    where = "deployment.adapters"
    costs = with_adapters(costs, adapters, question.model, question.cluster, pool, options, where)
    free, resident = costs.kv_blocks, costs.adapters
    if resident is not None and resident.blocks:
        # Adapters of running sequences take blocks: as many as run with them.
        request = resident.blocks + longest / options.block_tokens
        free -= int(min(free / request, adapters.count) * resident.blocks)
    kv_tokens = free * options.block_tokens
    if kv_tokens < longest:
        raise InfeasibleError(f"KV of {kv_tokens:,} tokens is less than a request of {longest:,.0f}")
    queries = 1 if pool.speculation is None else pool.speculation.queries
    steps = costs.steps
    table = adapted_table(shape.table, steps, queries) if isinstance(steps, AdapterSteps) else shape.table
    return replace(shape, table=table, kv_tokens=kv_tokens, plain=shape.table)
