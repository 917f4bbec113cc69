"""What is expected of first choices by how far other sources' best runs fell short of theirs."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest

from evidence.accuracy.promised import Promised, corrected, expected_shares, over_promised
from meshwright.validation.ledger import evaluate
from meshwright.validation.rows import PUBLISHED
from planner.training.measured_runs import PlanEvidence

NOTHING = PlanEvidence({}, 0, None)


@pytest.fixture(scope="module")
def entry():
    """A measured run with experts."""
    return evaluate([PUBLISHED / "mixture_of_experts.csv"]).entries[0]


def choices(entry, ratios, kind="experts", given=False):
    """First choices of families, by source: best measured over promised step."""
    return [
        Promised(
            replace(entry, case=replace(entry.case, case_id=f"{source}-{number}")),
            kind,
            ratio,
            0.2,
            NOTHING,
            NOTHING,
            given,
            "",
        )
        for source, values in ratios.items()
        for number, ratio in enumerate(values)
    ]


def test_each_source_has_one_vote(entry):
    many = choices(entry, {"AA": [1.5] * 9, "BB": [1.1], "CC": [1.2]})
    assert over_promised(many) == pytest.approx(1.2)
    assert over_promised([*many, *choices(entry, {"DD": [3.0]}, given=True)]) == pytest.approx(1.2)
    assert over_promised([]) == 1.0


def test_a_source_is_judged_by_the_others(entry):
    judged = choices(entry, {"AA": [1.5, 1.4], "BB": [1.2], "CC": [1.2]})
    assert corrected(judged) == pytest.approx([1.5 / 1.2, 1.4 / 1.2, 1.0, 1.0])


def test_a_figure_that_other_sources_do_not_bear_out_is_not_shipped(entry):
    alike = choices(entry, {"AA": [1.2, 1.3], "BB": [1.25], "CC": [1.2]})
    apart = choices(entry, {"AA": [1.3, 1.3], "BB": [exp(-0.2)], "CC": [1.0]}, kind="dense")
    shares, lines = expected_shares([*alike, *apart])
    assert shares == {"experts": pytest.approx(1.2, abs=0.06)}
    assert len(lines) == 2 and np.all([line.split(":")[0] in ("experts", "dense") for line in lines])
