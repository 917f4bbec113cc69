"""Options of an engine on the same ranks: exchange with experts, two batches, graphs, published heads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import meshwright as mw
from core.errors import InputError
from hwmodels.cluster import clusters
from meshwright.questions.serving import serving_question
from planner.serving.deployment import scenario_of
from planner.serving.engine_options import check_switches, settings, with_settings
from planner.serving.replica_cases import ReplicaCases
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

ASKED = {"model": "qwen3-30b-a3b", "cluster": "dgx-h100", "gpus": 8, "isl": 1000, "osl": 500}
ASKED |= {"ttft": 2.0, "tpot": 0.05, "split": False}
SPREAD = {"tensor": 1, "data": 8, "pipeline": 1, "expert": 8}
OTHERS = {"kv": None, "weights": "bf16", "speculation": None, "clock_mhz": None, "power_cap_w": None}


def question(engine, **fix):
    """Asked without a search."""
    values = dict.fromkeys(("rate", "share", "objective")) | ASKED | {"engine": engine}
    fixed = SPREAD | {"speculation": "none"} | fix
    return replace(serving_question(None, values, fixed, {}), split=values["split"])


def told(engine, **fix):
    kinds = settings(question(engine, **fix), SPREAD | OTHERS)
    return [(one.get("exchange"), one.get("overlap") and one["overlap"].kind) for one in kinds]


def test_settings_are_those_of_the_engine_the_plainest_first():
    every = [("all-gather", None), ("deepep", None), ("deepep", "two-batches")]
    assert told("vllm-0.19") == told("sglang-0.5.9") == every
    assert told("tensorrt-llm-1.2") == [(None, None)]
    assert told("vllm-0.19", exchange="deepep") == every[1:]
    assert told("vllm-0.19", overlap="two-batches") == every[2:]
    assert told("vllm-0.19", overlap="none") == every[:2]
    assert settings(question("vllm-0.19"), SPREAD | OTHERS | {"data": 1, "tensor": 8}) == [{}]


def test_deepep_is_for_nvidias_devices():
    asked = question("sglang-0.5.9")
    there = replace(asked, cluster=clusters.get("mi355x-8"))
    assert settings(there, SPREAD | OTHERS) == [{"exchange": "all-gather"}]
    for fix in ({"exchange": "deepep"}, {"overlap": "two-batches"}):
        with pytest.raises(InputError, match="mi355x"):
            check_switches(replace(there, fix=SPREAD | fix))


@pytest.mark.parametrize(
    ("engine", "fix", "where"),
    [
        ("tensorrt-llm-1.2", {"exchange": "deepep"}, "fix.exchange"),
        ("tensorrt-llm-1.2", {"overlap": "two-batches"}, "fix.overlap"),
        ("vllm-0.19", {"exchange": "nccl"}, "fix.exchange"),
        ("vllm-0.19", {"overlap": "ladder"}, "fix.overlap"),
        ("vllm-0.19", {"overlap": "two-batches", "exchange": "all-gather"}, "fix.overlap"),
        ("sglang-0.5.9", {"speculation": "medusa"}, "--speculate"),
    ],
)
def test_what_an_engine_lacks_is_refused(engine, fix, where):
    with pytest.raises(InputError, match=where):
        mw.deploy(**ASKED, engine=engine, fix=fix)


@pytest.mark.parametrize(
    ("engine", "fix"),
    [
        ("vllm-0.19", {"exchange": "deepep", "overlap": "two-batches"}),
        ("sglang-0.5.9", {"exchange": "all-gather"}),  # Prompts go first: decodes of their rank alone stop.
    ],
)
def test_steady_states_of_switched_replicas_agree_with_the_event_engine(engine, fix):
    held = SPREAD | {"speculation": "none"} | fix
    found = mw.deploy(**ASKED, engine=engine, fix=held, refine=0).search
    group, rate = found.plans[0].groups[0], 0.4 * found.plans[0].goodput
    scenario = scenario_of(found.question, found.plans[0], rate)
    scenario["workload"]["requests"] = int(40.0 * rate)
    setting = make_serving(scenario, "test", Path())
    pool = setting.pools[0].pool
    assert pool.exchange == fix["exchange"] and (pool.overlap is not None) == ("overlap" in fix)
    case = ReplicaCases.with_limits(found.question, [group.shape], [group.budget], [group.sequences])
    steady = case.state(np.array([rate])).tpot_s[0]
    assert steady == pytest.approx(serve(setting).to_dict()["tpot_s"]["mean"], rel=0.06)


def test_two_batches_bring_what_their_exchange_hides():
    """Never more than the exchange itself takes."""
    asked = question("vllm-0.19")
    gathered, sent, both = with_settings(asked, SPREAD | OTHERS)
    batch, keys = np.array([64.0]), np.array([1000.0])
    alone, overlapped = (
        float(
            ReplicaCases.of(asked, [one])[:1].steps.evaluate(
                np.zeros(1, int), lambda _, steps: steps.decode_seconds(batch, keys)
            )[0]
        )
        for one in (sent, both)
    )
    exchange = float(sent.table.price.exchange(8 * 64.0))
    assert alone - overlapped <= exchange
    assert gathered.pool.exchange == "all-gather"


def test_graphs_grow_where_batches_leave_them():
    """TensorRT-LLM captures 128 sequences by default; a small model's replica carries more."""
    asked = {**ASKED, "model": "llama3.1-8b", "gpus": 1, "engine": "tensorrt-llm-1.0"}
    fix = {"pipeline": 1, "speculation": "none"}
    grown = mw.deploy(**asked, fix=fix, refine=0)
    own = mw.deploy(**asked, fix=fix | {"largest_graph": 128}, refine=0)
    assert grown.best.groups[0].shape.pool.largest_graph > 128
    assert grown.best.goodput > own.best.goodput
    assert own.best.groups[0].shape.pool.largest_graph == 128


def test_published_heads_are_tried_beside_the_ranking():
    found = mw.deploy(**{**ASKED, "model": "llama3.1-8b", "gpus": 1}, engine="sglang-0.5.9", refine=0).search
    assert found.plans[0].groups[0].shape.pool.speculation is None
    drafts = found.guessed.groups[0].shape.pool.speculation
    assert drafts.kind == "eagle3" and drafts.assumed
    assert found.guessed.goodput > found.plans[0].goodput
    plain = mw.deploy(**{**ASKED, "model": "llama3-8b", "gpus": 1}, engine="sglang-0.5.9", refine=0).search
    assert plain.guessed is None
