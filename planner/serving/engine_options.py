"""Engine options that leave a replica's ranks as they are: exchange by DeepEP, two batches, graphs.

Each is a flag on the same launch, so a layout is scored with and without, and keeps the plainest setting that
carries as much within the steady state's error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError, InputError
from planner.serving.alternatives import STEADY_ERROR
from planner.serving.attention_search import beside_attention
from planner.serving.attention_sides import POOL
from planner.serving.drafts import published_heads
from planner.serving.question import ServingQuestion
from planner.serving.roles import Phase
from planner.serving.scored_deployments import Scores
from planner.serving.shapes import ReplicaShape, make_shape
from simulator.serving.engines import Engine
from simulator.serving.overlaps.pieces import TwoBatches
from simulator.serving.question.overlap import StepOverlap
from simulator.serving.steps.costs import engine_of
from simulator.serving.steps.table import IterationTable

Ints = NDArray[np.int64]

GATHERED, SENT = "all-gather", "deepep"
TWO_BATCHES = StepOverlap(kind=TwoBatches.name)
SWITCHES = ("exchange", "overlap", "largest_graph")
"""Fields of a pool that are switches."""
NEAR_GRAPHS = 0.8
"""Share of the largest graph from which a mean batch has steps beyond it."""
ROOM = 1.25
"""Largest graph that is tried, over the mean batch; up to the next power of two."""


def check_switches(question: ServingQuestion) -> None:
    """Refuse fixed options that the engine does not have.

    Raises:
        InputError: an unknown value, or an engine or overlap without it.
    """
    engine, device = _engine(question), question.cluster.device
    if question.fix.get("kv") == "fp4" and "fp4" not in device.peak_flops:
        raise InputError(f"no kernel of {device.name} reads fp4 KV", "fix.kv")
    exchange, overlap = (question.fix.get(name) for name in SWITCHES[:2])
    if exchange not in (None, GATHERED, SENT):
        raise InputError(f"allowed: {GATHERED}, {SENT}; found {exchange!r}", "fix.exchange")
    if overlap not in (None, "none", TwoBatches.name):
        raise InputError(f"a search tries {TwoBatches.name} or none; found {overlap!r}", "fix.overlap")
    sends = engine.sends_on(device)
    if exchange == SENT and not sends:
        raise InputError(f"{engine.name} has no option for it on {device.name}", "fix.exchange")
    if overlap == TwoBatches.name and not (engine.two_batches.value and sends):
        raise InputError(f"{engine.name} has no option for it on {device.name}", "fix.overlap")
    if overlap == TwoBatches.name and exchange == GATHERED:
        raise InputError(f"two batches overlap exchange {SENT}, found {GATHERED}", "fix.overlap")
    drafts = question.fix.get("speculation")
    if drafts is not None and engine.drafts.value and not engine.runs(drafts.kind):
        raise InputError(f"{engine.name} runs {engine.drafts.value}; found {drafts.kind}", "--speculate")


def settings(question: ServingQuestion, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Settings of the exchange with experts for a choice of degrees, the plainest first."""
    engine, fixed = _engine(question), question.fix
    if fields["data"] == 1 or fields["expert"] == 1 or not engine.sends_to_experts.value:
        return [{}]
    if not engine.sends_on(question.cluster.device):
        return [{"exchange": GATHERED}]
    values = (fixed["exchange"],) if "exchange" in fixed else (GATHERED, SENT)
    overlaps = (
        engine.two_batches.value and fields["power_cap_w"] is None and "overlap" not in question.policies
    )
    exchanges: list[dict[str, Any]] = []
    for exchange in values:
        both = exchange == SENT and overlaps and fixed.get("overlap") != "none"
        plain = fixed.get("overlap") in (None, "none") or not overlaps
        exchanges += [{"exchange": exchange}] if plain else []
        exchanges += [{"exchange": exchange, "overlap": TWO_BATCHES}] if both else []
    return exchanges


def with_settings(
    question: ServingQuestion,
    fields: Mapping[str, Any],
    tables: dict[tuple[Any, ...], IterationTable] | None = None,
) -> Iterator[ReplicaShape]:
    """The replica of a choice of degrees under every setting.

    Raises:
        InfeasibleError: weights and the KV of one request do not fit.
    """
    graph = {"largest_graph": question.fix["largest_graph"]} if "largest_graph" in question.fix else {}
    for setting in settings(question, fields):
        every = {**fields, **setting, **graph}
        shape = make_shape(question, every, tables)
        yield shape
        if POOL in question.pools:

            def make(options: dict[str, int], every: Mapping[str, Any] = every) -> ReplicaShape:
                return make_shape(question, {**every, "options": options}, tables)

            yield from beside_attention(question, shape, make, {} if tables is None else tables)


def with_switches(
    question: ServingQuestion,
    kept_shapes: Sequence[ReplicaShape],
    roles: Sequence[int],
    progress: Callable[[float], None] | None,
    phased: Callable[..., list[Phase]],
) -> list[Phase]:
    """Phases of every layout with the setting that it needs; graphs are raised where batches leave them.

    Args:
        question, kept, roles, progress: as of `scores.phases`.
        phased: scores shapes and roles.
    """
    scored_phases = phased(question, kept_shapes, roles, progress)
    raised = [] if "largest_graph" in question.fix else list(_raised(question, scored_phases))
    if raised:
        scored_phases = [*scored_phases, *phased(question, raised, roles)]
    return _settled(scored_phases)


TRIED_LAYOUTS = 3
"""Best layouts on which published heads are tried."""


def drafting_shapes(table: Scores, order: Ints) -> Iterator[ReplicaShape]:
    """Shapes of the best layouts of one pool without speculation, with heads published beside the model."""
    question = table.question
    heads = [] if "speculation" in question.fix else published_heads(question.model, question.engine)
    rows = order[table.second[order] < 0] if heads else order[:0]
    seen: list[int] = []
    for number in dict.fromkeys(map(int, table.first[rows])):
        if table.mixed[number].shape.pool.speculation is None and len(seen) < TRIED_LAYOUTS:
            seen.append(number)
    budget, sequences = question.fix.get("token_budget", np.inf), question.fix.get("max_sequences", 1)
    fitting = [drafts for drafts in heads if sequences * drafts.queries <= budget]
    for shape in (table.mixed[number].shape for number in seen):
        for drafts in fitting:
            fields = {name: getattr(shape.pool, name) for name in FIELDS} | {"speculation": drafts}
            with suppress(InfeasibleError):
                yield make_shape(question.at(shape.offer), fields, like=shape.plain or shape.table)


def switch_words(question: ServingQuestion) -> list[str]:
    """Switches and heads that a search of the question varies, in words."""
    engine, heads = _engine(question), published_heads(question.model, question.engine)
    sends = engine.sends_on(question.cluster.device)
    spread = question.model.moe is not None and sends and question.devices > 1
    tried = {
        "exchange with experts": spread and "exchange" not in question.fix,
        "two-batch overlap": spread and engine.two_batches.value and "overlap" not in question.fix,
        "graph limits": "largest_graph" not in question.fix,
        f"published heads ({', '.join(drafts.kind for drafts in heads)})": heads
        and "speculation" not in question.fix,
    }
    return [words for words, varied in tried.items() if varied]


def _engine(question: ServingQuestion) -> Engine:
    return engine_of(question.engine, Path(), "engine")


def _raised(question: ServingQuestion, phases: Sequence[Phase]) -> Iterator[ReplicaShape]:
    """Shapes whose decode steps leave the captured graphs, with larger ones, each once."""
    largest_batches: dict[int, tuple[Phase, float]] = {}
    for phase in phases:
        raisable = phase.role != "prefill" and phase.shape.attention is None
        if raisable and phase.batch > largest_batches.get(id(phase.shape), (phase, 0.0))[1]:
            largest_batches[id(phase.shape)] = phase, phase.batch
    for phase, batch in largest_batches.values():
        pool, table = phase.shape.pool, phase.shape.table
        queries = 1 if pool.speculation is None else pool.speculation.queries
        captured = table.largest_graph
        launches = table.price.eager - table.price.gaps
        beyond = table.tokens_s[min(captured + 1, len(table.tokens_s) - 1)]
        if not captured or batch * queries < NEAR_GRAPHS * captured or launches <= beyond:
            continue
        # Both count in the units that the engine captures.
        tokens = 1 << (int(ROOM * batch * queries) - 1).bit_length()
        largest = min(tokens, queries * phase.shape.options.max_sequences)
        if largest > captured:
            fields = {name: getattr(pool, name) for name in FIELDS} | {"largest_graph": largest}
            with suppress(InfeasibleError):
                yield make_shape(question.at(phase.shape.offer), fields, like=phase.shape.plain or table)


FIELDS = (
    *("tensor", "data", "pipeline", "expert", "weights", "kv", "speculation", "clock_mhz", "power_cap_w"),
    *("exchange", "overlap"),
)
"""Fields of a shape beside the graphs."""


def _settled(phases: Sequence[Phase]) -> list[Phase]:
    """One phase of each layout, role and link: the plainest that carries as much as the best."""
    groups: dict[tuple[Any, ...], list[Phase]] = {}
    for phase in phases:
        groups.setdefault((layout(phase.shape), phase.role, phase.bandwidth), []).append(phase)
    return [_plainest(group) for group in groups.values()]


def layout(shape: ReplicaShape) -> tuple[str, str, int, int]:
    """What a replica is without its switches: GPU type, fields of the pool, and attention beside it."""
    side = shape.attention
    devices, batches = (side.devices, side.batches) if side else (0, 0)
    return shape.offer.name, shape.pool.model_dump_json(exclude=set(SWITCHES)), devices, batches


def _plainest(group: Sequence[Phase]) -> Phase:
    """The first phase of which no later one carries more than the steady state's error tells apart."""
    plainest = group[0]
    for phase in group[1:]:
        if phase.rate.max() > plainest.rate.max() * (1.0 + STEADY_ERROR):
            plainest = phase
    return plainest
