"""The twelve transitions between split, broadcast and partial: brute force, and the op list's collectives."""

from pathlib import Path

import numpy as np
import pytest

from simulator.models import models
from simulator.ops import Batch, Rank, Shard, backward, layer
from simulator.ops.op import Collective
from simulator.plan import Choice
from tests.simulator.state.boxing import PLACED, boxing, boxing_table, boxings

PAGE = (Path(__file__).parents[3] / "docs" / "sync.md").read_text(encoding="utf-8")
AXES = {"split rows": 0, "split columns": 1}
RANKS, SIDE = 4, 8


def held(whole, placed):
    """What each rank holds of a tensor."""
    if placed in AXES:
        return np.split(whole, RANKS, axis=AXES[placed])
    if placed == "broadcast":
        return [whole.copy() for _ in range(RANKS)]
    terms = np.random.default_rng(1).integers(-9, 9, (RANKS - 1, *whole.shape))
    return [*terms, whole - terms.sum(axis=0)]


def moved(tensors, before, after):
    """Carry out a transition element by element, with the fewest sends; new tensors and elements sent.

    An element of a sum travels through a ring of partial sums, and back where all ranks need it.
    """
    whole = sum(tensors) if before == "partial" else None
    shape = (SIDE, SIDE)
    if whole is None:
        whole = np.concatenate(tensors, AXES[before]) if before in AXES else tensors[0]
    if after == "partial":  # terms that the ranks have add up, where each element is counted once
        own = [np.zeros(shape, whole.dtype) for _ in range(RANKS)]
        for rank in range(RANKS):
            if before in AXES:
                width = SIDE // RANKS
                place = [slice(None), slice(None)]
                place[AXES[before]] = slice(rank * width, (rank + 1) * width)
                own[rank][tuple(place)] = tensors[rank]
            elif rank == 0:
                own[rank][:] = tensors[rank]
        return own, 0
    sent = 0
    for index in np.ndindex(shape):
        width = SIDE // RANKS
        wanted = {index[AXES[after]] // width} if after in AXES else set(range(RANKS))
        if before == "partial":
            sent += RANKS - 1 + (len(wanted) - 1)
        else:
            holders = {index[AXES[before]] // width} if before in AXES else set(range(RANKS))
            sent += len(wanted - holders)
    return held(whole, after), sent


@pytest.mark.parametrize("each", list(boxings()), ids=lambda each: f"{each.before} to {each.after}")
def test_a_transition_sends_what_brute_force_sends(each):
    whole = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    after, sent = moved(held(whole, each.before), each.before, each.after)
    if each.after == "partial":
        assert np.array_equal(sum(after), whole)
    else:
        assert all(np.array_equal(*pair) for pair in zip(after, held(whole, each.after), strict=True))
    assert RANKS * each.sent(whole.size, RANKS) == sent


def test_there_are_twelve_and_none_to_stay():
    assert len(list(boxings())) == 12
    assert all(boxing(placed, placed).sent(1e6, 8) == 0 for placed in PLACED)


KNOWN = {
    ("all_gather", "tensor"): ("split rows", "broadcast"),
    ("reduce_scatter", "tensor"): ("partial", "split rows"),
    ("all_reduce", "tensor"): ("partial", "broadcast"),
    ("all_gather", "context"): ("split rows", "broadcast"),
    ("reduce_scatter", "context"): ("partial", "split rows"),
    ("all_to_all", "context"): ("split rows", "split columns"),
}
"""Transitions of a layer's tensors, rows being the sequence (Korthikanti et al. 2022, figure 5)."""


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-8b"])
@pytest.mark.parametrize("context_algorithm", ["all_gather", "ulysses"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_collectives_of_a_layer_are_transitions(name, sequence_parallel, context_algorithm):
    model, tensor, context, sequence, width = models.get(name), 8, 2, 4096, 2
    shard = Shard(
        tensor=tensor,
        context=context,
        sequence_parallel=sequence_parallel,
        context_algorithm=Choice["context_algorithm"].index(context_algorithm),
        context_heads=context if context_algorithm == "ulysses" else 1,
    )
    ops = layer(Rank(model, Batch.training(1, sequence), shard))
    sends = [op for op in (*ops, *backward(ops)) if isinstance(op, Collective) and not op.is_idle]
    assert {op.kind for op in sends} == {"tensor", "context"}
    head = 2 * model.head_dim * width  # a key and a value, or a query and an output
    tensors = {
        "tensor": sequence / context * model.hidden * width,
        "context.gather": sequence * head * model.kv_heads / tensor,
        "context.swap_keys": sequence * head * model.kv_heads / tensor,
        "context.swap_queries": sequence * head * model.heads / tensor,
    }
    for op in sends:
        change = boxing(*KNOWN[op.operation, op.kind])
        assert change.operation == op.operation
        names = [key for key in tensors if op.name.startswith(key)] or ["tensor"]
        group = tensor if op.kind == "tensor" else context
        assert float(np.max(op.size)) == group
        assert float(np.max(op.bytes)) == change.buffer(tensors[names[0]], group)


def test_the_page_shows_the_table_of_the_code():
    for line in boxing_table():
        assert line in PAGE
