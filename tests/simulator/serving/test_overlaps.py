"""Overlap inside a step."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.overlaps import Overlaps, overlaps
from simulator.serving.overlaps.saved import figures_of, hidden_seconds
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.capped import step_arrays
from simulator.serving.steps.step_arrays import StepArrays

NOTHING = {"network": 1.0, "memory": 1.0, "exchange": 1.0}


def setting(model: str = "llama3.1-8b", tensor: int = 4, cluster: str = "dgx-a100-80gb", **deployment):
    data = {
        "model": model,
        "cluster": cluster,
        "workload": {
            "kind": "serving",
            "requests": 40,
            "arrivals": {"kind": "poisson", "rate": 20},
            "input": 1500,
            "output": 100,
        },
        "deployment": {"tensor": tensor, **deployment},
    }
    return make_serving(data, "test", Path())


def steps(kind: str | None = None, tensor: int = 4, **options):
    overlap = None if kind is None else {"kind": kind, "options": options}
    return setting(tensor=tensor, overlap=overlap).pools[0].costs.steps


PLAIN = steps()
MIXED = ([(1024, 0)], 64, 64 * 1000)


@pytest.mark.parametrize("kind", ["nano-batches", "halves", "ladder", "two-batches"])
def test_a_table_of_ones_changes_nothing(kind):
    same = steps(kind, pieces=1, exposed=NOTHING)
    for batch in (MIXED, ([], 64, 64 * 1000), ([(300, 100)], 0, 0)):
        assert same.step(*batch) == pytest.approx(PLAIN.step(*batch), rel=1e-12)
    assert same.stretch(64, 64_000)[0] == pytest.approx(PLAIN.stretch(64, 64_000)[0], rel=1e-12)


@pytest.mark.parametrize("kind", overlaps)
def test_no_more_is_hidden_than_there_is(kind):
    overlap = overlaps[kind].model_validate({"exposed": dict.fromkeys(NOTHING, 0.0)})
    figures = figures_of(overlap, 1000, 0.0)
    for kinds in ((1, 2, 3, 4), (4, 1, 1, 1), (0, 0, 1, 0), (5, 0, 0, 0)):
        assert 0.0 <= hidden_seconds(figures, *kinds) <= sum(kinds) - max(kinds) + 1e-12


def test_pieces_cost_what_they_do_not_hide():
    cut = steps("nano-batches", exposed=NOTHING)
    assert cut.step(*MIXED) > PLAIN.step(*MIXED) > steps("ladder").step(*MIXED)


def test_one_device_has_no_all_reduce_to_hide():
    alone, ladder = (steps(kind, tensor=1) for kind in (None, "ladder"))
    assert ladder.step(*MIXED) == alone.step(*MIXED)


def test_halves_leave_decodes_alone():
    assert steps("halves").step([], 64, 64_000) == PLAIN.step([], 64, 64_000)
    assert steps("halves").stretch(64, 64_000)[0] == PLAIN.stretch(64, 64_000)[0]


@pytest.mark.parametrize("kind", overlaps)
def test_stretches_are_the_sum_of_their_steps(kind):
    found = steps(kind)
    first, growth, count = found.stretch(32, 32 * 700)
    for index in (0, count // 2, count - 1):
        kv_tokens = 32 * 700 + 32 * index
        assert first + growth * index == pytest.approx(found.step([], 32, kv_tokens), rel=1e-6)


def test_parts_sum_to_the_step():
    found = steps("nano-batches")
    assert sum(found.parts(*MIXED).values()) == pytest.approx(found.step(*MIXED))


def test_an_overlap_ends_requests_sooner():
    plain, ladder = (serve(setting(overlap=overlap)) for overlap in (None, {"kind": "ladder"}))
    assert ladder.records.columns()["last_s"].mean() < plain.records.columns()["last_s"].mean()


@pytest.mark.parametrize(
    ("overlap", "message"),
    [
        ({"kind": "nano-batch"}, "did you mean 'nano-batches'"),
        ({"kind": "halves", "options": {"piece": 2}}, "unknown key 'piece'"),
        ({"kind": "halves", "options": {"exposed": {"network": 1.5}}}, "at most 1"),
    ],
)
def test_bad_input(overlap, message):
    with pytest.raises(InputError, match=message):
        setting(overlap=overlap)


def test_a_prompt_half_computed_takes_about_half_and_its_kv_less():
    plain, swift = (setting(overlap=overlap).pools[0].costs for overlap in (None, {"kind": "swiftkv"}))
    ratio = swift.steps.step([(2048, 0)], 0, 0) / plain.steps.step([(2048, 0)], 0, 0)
    assert 0.45 < ratio < 0.7
    assert swift.steps.step([], 16, 16_000) == plain.steps.step([], 16, 16_000)
    assert swift.kv_blocks == pytest.approx(plain.kv_blocks / 0.375, rel=1e-3)
    assert swift.kv_token_bytes == pytest.approx(0.375 * plain.kv_token_bytes)


@pytest.mark.parametrize("kind", overlaps)
def test_arrays_of_steady_states_are_the_steps(kind):
    overlapped = steps(kind)
    cases = StepArrays([PLAIN, PLAIN], [Overlaps([None, overlapped])]).cases(np.array([0, 1]))
    alone = cases.decode_seconds(np.full(2, 64.0), np.full(2, 1000.0))
    assert alone == pytest.approx([PLAIN.step([], 64, 64_000), overlapped.step([], 64, 64_000)], rel=1e-9)
    beside = cases.mixed_seconds(np.full(2, 1024.0), np.zeros(2), np.full(2, 64.0), np.full(2, 1000.0))
    assert beside == pytest.approx([PLAIN.step(*MIXED), overlapped.step(*MIXED)], rel=1e-9)


def test_arrays_under_a_power_cap_are_the_steps_of_both():
    """Steady states price the cap, then the overlap, as the event engine does."""
    capped = setting(power_cap_w=200.0).pools[0].costs.steps
    both = setting(power_cap_w=200.0, overlap={"kind": "ladder"}).pools[0].costs.steps
    cases = step_arrays([capped], Overlaps([both])).cases(0)
    assert float(cases.decode_seconds(64.0, 1000.0)) == pytest.approx(both.step([], 64, 64_000), rel=1e-9)
    beside = float(cases.mixed_seconds(1024.0, 0.0, 64.0, 1000.0))
    assert beside == pytest.approx(both.step(*MIXED), rel=1e-9)
    assert capped.step(*MIXED) > max(PLAIN.step(*MIXED), both.step(*MIXED))


EXPERTS = {"model": "qwen3-30b-a3b", "tensor": 1, "data": 8, "expert": 8}


def test_a_pool_states_how_tokens_reach_experts():
    either, gathered, sent = (
        setting(**EXPERTS, exchange=one).pools[0].costs.steps for one in (None, "all-gather", "deepep")
    )
    tokens = np.array([8.0, 512.0, 8192.0])
    least = np.minimum(gathered.price.exchange(tokens), sent.price.exchange(tokens))
    assert either.price.exchange(tokens) == pytest.approx(least, rel=1e-12)
    assert sent.price.exchange(tokens)[-1] < gathered.price.exchange(tokens)[-1]


def test_sglang_gathers_prompts_by_all_reduces_of_all_tokens():
    """A ring's all-reduce is an all-gather and a reduce-scatter: prompts exchange twice what decodes do."""
    price = setting(**EXPERTS, engine="sglang-0.5.9", exchange="all-gather").pools[0].costs.steps.price
    most = 8.0 * price.graphs[-1]
    tokens = np.array([most, 8.0 * most])
    decodes, prompts = price.exchange(tokens) / price.model.moe_layers
    rings, reduces = (
        sum(price.cluster.collective(kind, tokens * price.model.hidden * 2.0, 8) for kind in kinds)
        for kinds in (("all_gather", "reduce_scatter"), ("all_reduce", "all_reduce"))
    )
    assert decodes == pytest.approx(rings[0], rel=1e-12)
    assert prompts == pytest.approx(reduces[1], rel=1e-12)
    assert prompts > 1.5 * rings[1]


def test_an_engine_without_the_kernels_refuses_them():
    with pytest.raises(InputError, match="exchange"):
        setting(**EXPERTS, engine="tensorrt-llm-1.0", exchange="deepep")


def test_experts_gather_where_the_kernels_do_not_run():
    asked = {**EXPERTS, "engine": "sglang-0.5.9", "cluster": "mi300x-8"}
    either, gathered = (
        setting(**asked, exchange=one).pools[0].costs.steps.price for one in (None, "all-gather")
    )
    tokens = np.array([8.0, 8192.0])
    assert either.exchange(tokens) == pytest.approx(gathered.exchange(tokens), rel=1e-12)
    with pytest.raises(InputError, match="mi300x"):
        setting(**asked, exchange="deepep")
