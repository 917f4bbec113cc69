"""Tables and curves that searches of one process share."""

import pytest

from meshwright.questions.serving import serving_question
from planner.serving import shared_pricing as module
from planner.serving.search import search_serving
from planner.serving.shared_pricing import HELD, MOST_CURVES, SharedPricing, shared_pricing

ASKED = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 2, "isl": 700, "osl": 100, "ttft": 1.0}
NONE = dict.fromkeys(("share", "objective", "rate", "e2e"))


def question(**changed):
    return serving_question(None, {**NONE, **ASKED, "engine": "vllm-0.19", **changed}, {}, {})


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch):
    monkeypatch.setattr(module, "_last", [])


def answer(asked):
    plans = search_serving(asked, 4).plans
    return [(plan.describe(), plan.goodput, plan.ttft_s, plan.tpot_s, plan.watts) for plan in plans]


def test_looser_targets_find_tables_and_curves_and_answer_the_same():
    first = answer(question(tpot=0.02))
    shared = shared_pricing(question(tpot=0.05))
    tables, curves = dict(shared.tables), len(shared.curves)
    assert tables and curves
    after = answer(question(tpot=0.05))
    assert tables.items() <= shared.tables.items() and len(shared.curves) < 2 * curves
    module._last.clear()
    assert answer(question(tpot=0.05)) == after
    assert answer(question(tpot=0.02)) == first


def test_other_lengths_share_products_and_no_attention():
    search_serving(question(tpot=0.05), 1)
    before = set(map(id, shared_pricing(question(tpot=0.05)).tables.values()))
    search_serving(question(tpot=0.05, isl=1400), 1)
    tables = list(shared_pricing(question(tpot=0.05)).tables.values())
    new = [table for table in tables if id(table) not in before]
    assert new
    for table in new:
        assert any(table.inside_s is old.inside_s for old in tables if id(old) in before)
        assert not any(table.chunks is old.chunks for old in tables if id(old) in before)


def test_other_devices_models_and_engines_share_nothing():
    base = shared_pricing(question(tpot=0.05))
    for changed in ({"gpus": 4}, {"model": "qwen2.5-7b"}, {"engine": "sglang-0.5.12"}):
        assert shared_pricing(question(tpot=0.05, **changed)) is not base
    assert len(module._last) == HELD


def test_curves_are_held_in_a_number():
    room = SharedPricing()
    for number in range(MOST_CURVES + 5):
        room.keep((number,), [], None)
    assert len(room.curves) == MOST_CURVES and (0,) not in room.curves
