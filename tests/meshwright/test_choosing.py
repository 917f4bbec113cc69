"""Published plans beside ours: the question, the gain and its parts agree with the cost model."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.validation.ledger import evaluate
from simulator.plan import Plans
from simulator.training import predict

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "meshwright" / "published"


def best_plans():
    """The module, which is no package that is installed."""
    name = "meshwright_benchmarks_best_plans"
    spec = importlib.util.spec_from_file_location(name, ROOT / "evidence" / "accuracy" / "best_plans.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


module = best_plans()


@pytest.fixture(scope="module")
def entries():
    return evaluate([PUBLISHED / "korthikanti_2022.csv"]).entries


@pytest.fixture(scope="module")
def comparison(entries):
    entry = next(each for each in module.published_best(entries) if "175" in each.case.setting.model.name)
    return module.compare(entry, module.Practice(entries))


def test_the_published_plan_is_the_fastest_of_the_largest_question(entries):
    (entry,) = (each for each in module.published_best(entries) if "175" in each.case.setting.model.name)
    alike = [each for each in entries if each.case.setting == entry.case.setting]
    assert len(alike) > 1
    assert entry.case.measured_step_s == min(each.case.measured_step_s for each in alike)


def test_a_gain_is_the_sum_of_its_parts(comparison):
    saved = sum(share for _, share in comparison.saves) - sum(share for _, share in comparison.costs)
    named = len(comparison.saves) + len(comparison.costs)
    least = module.LEAST_SHARE * (25 - named)  # parts below the least share are not named
    assert saved == pytest.approx(1 - 1 / (1 + comparison.gain), abs=least)
    setting = comparison.case.case.setting
    (seconds,) = predict(setting, Plans.of(comparison.ours)).time
    assert comparison.our_seconds == pytest.approx(seconds)


def test_our_plan_is_never_predicted_slower_than_a_published_one_that_the_search_may_take(comparison):
    assert comparison.gain > -1e-6
    published = comparison.case.case.plan
    assert all(getattr(comparison.ours, name) == getattr(published, name) for name in module.SOFTWARE)


def test_values_without_a_measured_run_are_named(entries, comparison):
    plan = replace_field(comparison.ours, virtual_pipeline=77)
    untested = module.Practice(entries).untested(comparison.case, plan)
    assert "virtual_pipeline 77" in untested
    assert module.Practice(entries).untested(comparison.case, comparison.case.case.plan) == ()


def replace_field(plan, **changes):
    return plan.model_copy(update=changes)


def test_a_family_without_a_plan_that_fits_says_so(comparison):
    none = replace(comparison, ours=None, problem="no plan is predicted to fit")
    assert list(none.lines())[-1] == "  best found  none: no plan is predicted to fit"
    assert list(module.summary([none])) == []
    lines = list(comparison.lines())
    assert lines[1].startswith("  published") and "s measured" in lines[1]
    assert next(iter(module.summary([comparison]))).startswith("1 families")
