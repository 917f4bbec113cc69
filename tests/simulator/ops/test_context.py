"""Context-parallel algorithms: limits in which they are each other, bytes, and windows."""

from __future__ import annotations

import numpy as np
import pytest

import meshwright as mw
from core.errors import InputError
from simulator.models import models
from simulator.ops import Batch, Collective, MemoryBound, Op, Rank, Shard, layer, linear_context
from simulator.ops.rank import Implementation
from simulator.plan import Choice

RING, ULYSSES, USP, TOKEN_RING = (
    Choice["context_algorithm"].index(word) for word in ("ring", "ulysses", "usp", "token-ring")
)
MULTI_HEAD, HYBRID = models.get("llama-7b"), models.get("nemotron-h-8b")


SWITCH, MESH = (Implementation(mesh=mesh, node=8) for mesh in (False, True))


def ops(algorithm: int, heads: int = 1, how: Implementation = SWITCH) -> list[Op]:
    shard = Shard(context=8, context_algorithm=algorithm, context_heads=heads)
    return layer(Rank(MULTI_HEAD, Batch.training(1, 65536), shard, how=how))


def sent(listed: list[Op]) -> dict[str, tuple[float, float]]:
    """Bytes of a call and calls, by the name of each collective that does not idle."""
    sends = (op for op in listed if isinstance(op, Collective) and op.kind == "context" and not op.is_idle)
    return {op.name: (float(np.asarray(op.bytes)), float(np.asarray(op.repeats))) for op in sends}


def linear(exchange: str, context: int = 8, length: int = 65536) -> list[Op]:
    how = Implementation(linear_context=exchange)
    return layer(
        Rank(HYBRID, Batch.training(1, length), Shard(context=context), how=how), "linear", False, False
    )


@pytest.mark.parametrize(("heads", "same"), [(1, RING), (8, ULYSSES)])
def test_usp_of_one_degree_is_ring_or_ulysses(heads: int, same: int) -> None:
    usp, other = ops(USP, heads), ops(same, 8 if same == ULYSSES else 1)
    assert sent(usp) == sent(other)
    assert [op.flops for op in usp] == [op.flops for op in other]


def test_usp_rings_over_the_ranks_that_split_no_heads() -> None:
    ring = next(op for op in ops(USP, 2) if op.name == "context.ring")
    assert isinstance(ring, Collective)
    assert (float(ring.size), float(ring.stride), float(ring.repeats)) == (4, 2, 3)
    assert float(ring.window) == 3 / 4


def test_all_algorithms_compute_the_same_scores() -> None:
    flops = [sum(float(np.sum(op.flops)) for op in ops(a, h)) for a, h in ((RING, 1), (ULYSSES, 8), (USP, 2))]
    assert flops == pytest.approx([flops[0]] * 3)


def test_token_ring_halves_the_time_on_a_mesh_and_none_behind_a_switch() -> None:
    ring = sent(ops(RING))["context.ring"][0]
    switch, mesh = (sent(ops(TOKEN_RING, how=how))["context.token_ring"][0] for how in (SWITCH, MESH))
    # The statistics of the softmax travel with the outputs: 4 bytes a head beside 256.
    assert switch == pytest.approx(ring * (1 + 4 / 512))
    assert mesh == pytest.approx(ring / 2 * (1 + 4 / 256))


@pytest.mark.parametrize("exchange", ["lasp", "lasp-2", "zeco"])
def test_states_do_not_grow_with_the_sequence(exchange: str) -> None:
    assert sent(linear(exchange)) == sent(linear(exchange, length=2**20))


def test_slices_of_heads_grow_with_the_sequence() -> None:
    short, long = sent(linear("heads")), sent(linear("heads", length=2**20))
    assert {name: bytes_ * 16 for name, (bytes_, _) in short.items()} == {
        name: bytes_ for name, (bytes_, _) in long.items()
    }


def test_lasp_2_gathers_what_lasp_sends_once_a_rank() -> None:
    one, calls = sent(linear("lasp"))["context.states"]
    gathered, _ = sent(linear("lasp-2"))["context.states"]
    assert (calls, gathered) == (7, 8 * one)


def test_zeco_in_one_block_sends_what_lasp_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mechanism off: one block a state; on, fewer bytes pass one after the other."""
    one, calls = sent(linear("lasp"))["context.states"]
    (block, first), (_, others) = (sent(linear("zeco"))[f"context.{name}"] for name in ("states", "blocks"))
    assert block * (first + others) < one * calls
    monkeypatch.setattr(linear_context, "SCAN_BLOCKS", 1)
    assert sent(linear("zeco"))["context.states"] == (one, calls)


@pytest.mark.parametrize("exchange", ["heads", "lasp", "lasp-2", "zeco"])
def test_one_rank_exchanges_nothing(exchange: str) -> None:
    assert not sent(linear(exchange, context=1))


LONG = {
    "title": "long",
    "model": "nemotron-h-8b",
    "cluster": "dgx-h100",
    "gpus": 64,
    "workload": {"seq_len": 1048576, "global_batch": 1},
}


def step(**plan: object) -> float:
    return mw.simulate(
        {**LONG, "plan": {"context": 64, "zero": 1, "recompute": "full", **plan}}
    ).simulation.analytic_step_s


def test_a_mapping_names_the_algorithm_of_each_kind_of_layer() -> None:
    both = step(context_algorithm={"full": "usp", "linear": "lasp-2"}, context_heads=8)
    assert both == step(context_algorithm="usp", context_heads=8, linear_context="lasp-2")


def test_states_beat_slices_of_heads_at_a_million_tokens() -> None:
    assert step(linear_context="zeco") < step(linear_context="lasp-2") < step()


def test_lasp_reads_the_state_of_each_hop_before_it_sends_its_own() -> None:
    """Bytes of a hop: a state, and one pass over queries and two over outputs of a rank's tokens."""
    spec = HYBRID.linear
    assert spec is not None
    tokens, state = 65536 / 8, sent(linear("lasp"))["context.states"][0]
    (read,) = (op for op in linear("lasp") if op.name == "read_state")
    width = 2 * spec.heads * (spec.key_dim + 2 * spec.value_dim)
    assert isinstance(read, MemoryBound)
    assert float(np.asarray(read.bytes)) == 7 * (state + tokens * width)
    assert float(np.asarray(read.starts)) == 7


def test_lasp_waits_for_tokens_and_lasp_2_for_none() -> None:
    def waits(exchange: str, length: int) -> float:
        long = {**LONG, "workload": {"seq_len": length, "global_batch": 1}}
        plan = {"context": 64, "zero": 1, "recompute": "full", "linear_context": exchange}
        return mw.simulate({**long, "plan": plan}).simulation.analytic_step_s

    gaps = [waits("lasp", length) - waits("lasp-2", length) for length in (2**18, 2**20)]
    assert 2.5 * gaps[0] < gaps[1] < 4 * gaps[0]


def test_zeco_that_waits_for_the_products_within_chunks_gains_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeCO hides its states behind products within chunks; LASP's chain and LASP-2's gather hide nothing."""
    names = ("zeco", "lasp", "lasp-2")
    hidden, *others = (step(linear_context=name) for name in names)
    monkeypatch.setattr(linear_context, "_within_chunks", lambda rank, spec: np.zeros(rank.context.shape))
    waits, *same = (step(linear_context=name) for name in names)
    assert hidden < waits
    assert others == same


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"context_algorithm": "usp"}, "needs context_heads, a divisor of context = 64; found 0"),
        ({"context_algorithm": "usp", "context_heads": 3}, "found 3"),
        ({"context_heads": 8}, "is a degree of usp"),
        ({"context_algorithm": {"sliding": "ring"}}, "unknown layers 'sliding'"),
        ({"context": 1, "tensor": 8, "data": 8, "linear_context": "zeco"}, "context is 1"),
    ],
)
def test_degrees_that_do_not_fit_are_refused(plan: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        step(**plan)


def test_heads_of_linear_layers_divide_unless_states_are_exchanged() -> None:
    with pytest.raises(InputError, match="do not divide by tensor x context"):
        mw.simulate({**LONG, "gpus": 256, "plan": {"context": 256, "zero": 1}})


def test_models_without_linear_layers_refuse_their_algorithms() -> None:
    with pytest.raises(InputError, match="has no linear attention"):
        mw.simulate({**LONG, "model": "llama3.1-8b", "plan": {"context": 64, "linear_context": "lasp"}})
