"""Published gains: every scenario of a paper has its claim, runs and gains; the docs show the same tables."""

import importlib.util
import sys
from pathlib import Path

import pytest

from meshwright.questions.scenarios import question_of, shipped_scenarios

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
COMPARISONS = {"waves-and-both-ways"}
"""Scenarios that lay several papers' schedules side by side and repeat no paper's own case."""


def benchmark(name):
    """A module of ``benchmarks``, which is no package that is installed."""
    spec = importlib.util.spec_from_file_location(
        f"meshwright_benchmarks_{name}", ROOT / f"benchmarks/{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


papers, schedule_table = benchmark("papers"), benchmark("schedules")
serving_papers = benchmark("serving_papers")
SERVED = sorted({claim.scenario for claim in serving_papers.SERVING_CLAIMS})
moving_papers = benchmark("moving_papers")
MOVED = sorted({claim.scenario for claim in moving_papers.MOVING_CLAIMS})
placed_papers = benchmark("placed_papers")
MOVED += sorted({claim.scenario for claim in placed_papers.PLACED_CLAIMS})
run_papers = benchmark("run_papers")
RUN = sorted({claim.scenario for claim in run_papers.RUN_CLAIMS})
tiers = benchmark("tiers")
TIERED = sorted(tiers.TIER_SCENARIOS)
TIERS_PAGE = (ROOT / "docs" / "tiers-accuracy.md").read_text(encoding="utf-8")
SERVING_PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
NAMES = sorted({claim.scenario for claim in papers.CLAIMS})


@pytest.fixture(scope="module")
def runs():
    return {name: papers.Runs(name) for name in NAMES}


def test_every_scenario_of_a_paper_has_a_claim():
    shipped = {name.removeprefix("papers/") for name in shipped_scenarios() if name.startswith("papers/")}
    assert shipped == {*NAMES, *COMPARISONS, *SERVED, *MOVED, *RUN, *TIERED}


@pytest.mark.parametrize("name", [*NAMES, *SERVED, *MOVED, *RUN, *TIERED])
def test_a_scenario_says_what_is_claimed_and_what_came_out(name):
    words = question_of(shipped_scenarios()[f"papers/{name}"])
    assert "claim" in words and "Answer:" in words
    assert "eached" in words or "issed" in words


@pytest.mark.parametrize("claim", papers.CLAIMS, ids=lambda claim: f"{claim.scenario} {claim.what}")
def test_a_claims_runs_are_there_and_the_first_of_them_gains(claim, runs):
    known = runs[claim.scenario]
    assert {name for pair in claim.pairs for name in pair} <= set(known.by_name)
    for run in known.by_name.values():
        assert run.scenario().plan is not None
    (found,) = papers.gains(papers.replace(claim, pairs=claim.pairs[:1]), known)
    assert 1 < found < 1.5 * claim.published[1]


@pytest.mark.parametrize(
    ("gain", "words"),
    [
        (1.304, "reached"),
        (1.21, "reached"),
        (1.39, "reached"),
        (1.1, "below by 15%"),
        (1.87, "above by 44%"),
    ],
)
def test_verdicts(gain, words):
    claim = papers.Claim("", "", (1.05, 1.3), ())
    assert papers.verdict(claim, [1.0, gain]) == words


@pytest.mark.parametrize(
    ("figures", "words", "shown"),
    [
        ((1.3,), "inside", "1.30"),
        ((1.199,), "below", "1.199"),
        ((1.2,), "inside", "1.20"),
        ((1.2, 2.7, 1.4), "inside at 2 of 3", "1.20-2.70"),
        ((1.9, 2.1), "inside at 1 of 2", "1.90-2.10"),
        ((2.1, 2.2), "above", "2.10-2.20"),
    ],
)
def test_verdicts_of_serving_claims_and_of_ranges(figures, words, shown):
    band = (1.2, 2.0)
    assert serving_papers.verdict(figures, band) == words
    assert serving_papers.printed(figures, band) == shown


@pytest.mark.parametrize("most", [0, 1, 2, 37, 1024])
def test_the_largest_that_fits(most):
    assert papers.largest(lambda count: count <= most) == most


def test_the_page_shows_every_schedule_as_the_command_prints_it():
    for line in schedule_table.rows():
        assert line in PAGE


def test_the_page_shows_every_claim_with_its_conditions():
    for claim in papers.CLAIMS:
        published = papers.shown(*claim.published)
        assert f"| {claim.what} | {published} |" in PAGE, claim.what


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_every_claim_as_the_command_prints_it(runs, name):
    claims = [claim for claim in papers.CLAIMS if claim.scenario == name]
    for line in papers.rows(claims, {name: runs[name]}):
        assert line in PAGE, f"{line}: python -m benchmarks.papers --write"


@pytest.mark.parametrize("name", SERVED)
def test_the_runs_of_a_serving_claim_are_there(name):
    known = serving_papers.ServingRuns(name)
    for claim in serving_papers.SERVING_CLAIMS:
        if claim.scenario == name:
            assert {*claim.runs, *claim.over} <= set(known.by_name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({claim.scenario for claim in papers.ALL_SERVING}))
def test_the_page_shows_every_serving_claim_as_the_command_prints_it(name):
    """A scenario a test: two workers share them."""
    for line in serving_papers.serving_rows([name], papers.ALL_SERVING):
        assert line in SERVING_PAGE, line


@pytest.mark.slow
def test_the_page_of_tiers_is_that_of_the_command():
    for line in tiers.rows():
        assert line in TIERS_PAGE


MISSED = {"100 Gb/s, 1K": "13.8 % above since all-to-all on InfiniBand is the mean of three fabrics"}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(
            p, marks=[pytest.mark.xfail(strict=True, reason=MISSED[name])] if name in MISSED else [], id=name
        )
        for p in [p for p in tiers.POINTS if p.unit == "times"][:4]
        for name in [p.run[0]]
    ],
)
def test_zero_plus_plus_gains_what_was_measured(point):
    """Within 12 %, the band set before looking."""
    assert tiers.TierRuns(point.scenario).figure(point) == pytest.approx(point.published, rel=0.12)


def test_offload_deferred_and_none_keep_their_order():
    known = tiers.TierRuns("deferred-update-3b")
    steps = [known.step(name) for name in ("base", "deferred", "offload")]
    assert steps == sorted(steps)


patrickstar = benchmark("patrickstar")


def test_the_largest_published_models_of_patrickstar_fit():
    for row in patrickstar.table():
        if row.size == patrickstar.LARGEST[row.gpu]:
            assert patrickstar.best(row)[0] > 0
