"""Speculative decoding: kinds, acceptance, costs, and two ways to the same TPOT."""

from collections import deque
from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError, MeshwrightError
from simulator.models import models
from simulator.serving.question.speculation import KINDS, Speculation, drafting_defaults, read_speculation
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.steady import Limits, Load, steady_state
from simulator.serving.steady.steady_cases import Cases
from simulator.serving.steps.speculation import Drafts, SpeculativeSteps
from simulator.serving.steps.speculation_cases import SpeculativeCases
from tests.simulator.serving.conftest import STEPS


def scenario(speculation, model="qwen3-8b", clients=8, **deployment):
    return make_serving(
        {
            "model": model,
            "cluster": "dgx-h200",
            "workload": {
                "kind": "serving",
                "requests": 40 * clients,
                "arrivals": {"kind": "closed", "concurrency": clients},
                "input": {"kind": "uniform", "low": 400, "high": 600},
                "output": {"kind": "uniform", "low": 200, "high": 400},
            },
            "deployment": {**({"speculation": speculation} if speculation else {}), **deployment},
        },
        "test",
        Path(),
    )


def tpot(setting) -> float:
    columns = serve(setting).records.columns()
    return float(np.mean((columns["last_s"] - columns["first_s"]) / (columns["output"] - 1)))


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_kind_alone_is_a_complete_question(kind):
    speculation = Speculation.model_validate({"kind": kind})
    assert speculation.tokens == drafting_defaults()[kind].tokens.value
    assert speculation.assumed
    assert speculation.queries > speculation.tokens
    assert 1.0 < speculation.mean() <= speculation.tokens + 1


def test_one_number_and_equal_positions_are_the_same_acceptance():
    number = Speculation.model_validate({"kind": "eagle", "tokens": 5, "acceptance": 0.7})
    positions = Speculation.model_validate({"kind": "eagle", "tokens": 5, "acceptance_by_position": [0.7]})
    assert positions.shares() == pytest.approx(number.shares())
    assert number.mean() == pytest.approx(sum(0.7**place for place in range(6)))


def test_later_positions_that_are_never_accepted_end_the_draft():
    speculation = Speculation.model_validate(
        {"kind": "eagle3", "tokens": 3, "acceptance_by_position": [0.8, 0.5, 0.0]}
    )
    assert speculation.mean() == pytest.approx(1 + 0.8 + 0.8 * 0.5)


@pytest.mark.slow
def test_drafts_that_are_never_accepted_cost_time():
    plain = tpot(scenario(None))
    never = tpot(scenario({"kind": "eagle", "acceptance": 0.0}))
    often = tpot(scenario({"kind": "eagle", "acceptance": 0.8}))
    assert often < plain < never


def test_a_lookup_costs_less_than_a_head_of_the_same_acceptance():
    lookup = tpot(scenario({"kind": "ngram", "tokens": 3, "acceptance": 0.6, "host": 0.0}))
    head = tpot(scenario({"kind": "eagle", "tokens": 3, "acceptance": 0.6}))
    assert lookup < head < 1.25 * lookup


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "speculation", "degrees"),
    [
        ("qwen3-8b", {"kind": "eagle3"}, {}),
        ("deepseek-v3", {"kind": "mtp"}, {"tensor": 8, "weights": "fp8"}),
        ("deepseek-v3", {"kind": "mtp", "tokens": 2}, {"data": 8, "expert": 8, "weights": "fp8"}),
    ],
)
def test_the_steady_state_agrees_with_the_event_engine(model, speculation, degrees):
    setting = scenario(speculation, model, 16, **degrees)
    pool = setting.pools[0]
    target = pool.costs.steps.target
    cases = SpeculativeCases(target.cases, pool.pool.speculation, setting.model.layers)
    limits = Limits(pool.options.token_budget, pool.options.max_sequences, 1e6)
    state = steady_state(cases, Load(500.0, 300.0, concurrency=16.0), limits)
    assert float(state.tpot_s) == pytest.approx(tpot(setting), rel=0.04)


def test_drafts_take_tokens_of_the_budget():
    """vLLM's scheduler: 64 decodes with three drafts leave half of 512 tokens to prompts."""
    options = scenario(None).pools[0].options
    batcher = Batcher(options, PagedBlocks(1000, options.block_tokens, False), deque(), 64)
    batcher.budget, step = 512, PlannedStep()
    step.decodes = 64
    assert batcher.left(step) == 448
    batcher.drafts = Drafts(Speculation(kind="eagle", tokens=3), [0])
    assert batcher.left(step) == 256
    step.decodes = 200
    assert batcher.left(step) == 0


@pytest.mark.parametrize(("drafts", "chunks"), [(None, 2.0), (Speculation(kind="eagle", tokens=3), 3.5)])
def test_drafts_take_tokens_of_the_budget_of_steady_states(drafts, chunks):
    setting = scenario(None)
    cases = setting.pools[0].costs.steps.cases
    if drafts is not None:
        cases = SpeculativeCases(cases, drafts, setting.model.layers)
    loaded = Cases(cases, Load(896.0, 100.0, rate=1.0), Limits(512, 64, 1e6))
    batch = np.array(64.0)
    assert loaded.prefills(batch, loaded.decode(batch)).chunks == pytest.approx(chunks)


def test_accepted_drafts_vary_tpot_as_drawn():
    """A lone request takes as many steps as its drafts ask for, drawn at random."""
    setting = scenario({"kind": "eagle", "tokens": 3, "acceptance": 0.6}, "qwen3-8b", 16)
    pool = setting.pools[0]
    speculation = pool.pool.speculation
    cases = SpeculativeCases(pool.costs.steps.target.cases, speculation, setting.model.layers)
    state = steady_state(cases, Load(500.0, 300.0, rate=1e-4), Limits(2048, 64, 1e6))
    yields = np.random.default_rng(1).choice(np.arange(1, 5), (4000, 299), p=speculation.shares())
    steps = 1 + (np.cumsum(yields, axis=1) < 299).sum(axis=1)
    assert float(state.tpot_spread_s / state.tpot_s) == pytest.approx(steps.std() / steps.mean(), rel=0.05)


def test_heads_take_memory():
    without, heads = scenario(None), scenario({"kind": "eagle"})
    assert heads.pools[0].costs.weight_bytes > without.pools[0].costs.weight_bytes
    assert heads.pools[0].costs.kv_blocks < without.pools[0].costs.kv_blocks


@pytest.mark.parametrize(
    ("speculation", "words"),
    [
        ({"kind": "mtp"}, "no heads of multi-token prediction"),
        ({"draft": "qwen3-32b", "tokens": 3, "acceptance": 0.7}, "larger than its target"),
        ({"kind": "eagle", "acceptance": 1.2}, "acceptance"),
        ({"kind": "eagle", "acceptance_by_position": [0.8, 1.1]}, "acceptance_by_position"),
        ({"kind": "eagle", "draft": "qwen3-0.6b"}, "kind draft-model"),
        ({"tokens": 3, "acceptance": 0.7}, "`draft` names the draft model"),
        ({"kind": "medusa", "tokens": 4, "verified": 3}, "must exceed"),
        ({"kind": "eagle2"}, "kind"),
    ],
)
def test_impossible_speculation_is_refused(speculation, words):
    with pytest.raises(InputError, match=words):
        scenario(speculation)


def test_a_kind_with_tokens_is_read_from_one_word():
    assert read_speculation("mtp:2") == {"kind": "mtp", "tokens": 2}
    assert read_speculation("llama3.2-1b:4") == {"draft": "llama3.2-1b", "tokens": 4}
    with pytest.raises(MeshwrightError, match="number of tokens"):
        read_speculation("eagle:many")


def test_models_whose_checkpoints_carry_heads_have_them():
    assert models.get("deepseek-v3").mtp_layers == 1
    assert models.get("qwen3-8b").mtp_layers == 0


def test_proposals_as_sequences_of_their_own_read_their_kv_again():
    """One verification of b x (k + 1) sequences costs what such a decode step of the target costs."""
    together, expanded = (
        SpeculativeSteps(STEPS, None, Speculation(kind="ngram", tokens=3, acceptance=0.5, expanded=expanded))
        for expanded in (False, True)
    )
    assert expanded.step((), 8, 8000) == pytest.approx(STEPS.step((), 32, 32_000) + expanded.host_s)
    assert expanded.step((), 8, 8000) > together.step((), 8, 8000)
