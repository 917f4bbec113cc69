"""Files of claims: what they hold is checked as they are read, with the file, the scenario and the place."""

import pytest

from core.errors import InputError
from evidence.claims.claim_files import check_figure, claims_of
from evidence.claims.papers import Claim
from evidence.claims.run_papers import FIGURES, RunClaim
from evidence.claims.serving_papers import ServingClaim

PAIRS = {"what": "2BP", "published": [1.7, 1.7], "pairs": [["2BP", "base"]]}
SERVED = {"what": "tokens/s", "published": 1.2, "band": [1.0, 2.0], "runs": ["base"], "metric": "output_rate"}


def test_claims_are_read_by_scenario_in_their_order():
    claims = claims_of({"one": [PAIRS, {**PAIRS, "what": "later"}], "two": [PAIRS]}, Claim, "f")
    assert [(claim.scenario, claim.what) for claim in claims] == [
        ("one", "2BP"),
        ("one", "later"),
        ("two", "2BP"),
    ]
    assert claims[0].pairs == (("2BP", "base"),)


@pytest.mark.parametrize(
    ("kind", "listed", "words"),
    [
        (Claim, {"what": "2BP"}, "f: one: a list of claims is needed"),
        (Claim, ["2BP"], r"f: one\[0\]: a mapping of keys"),
        (Claim, [PAIRS, {**PAIRS, "pair": []}], r"f: one\[1\]: unknown key 'pair'; did you mean 'pairs'"),
        (Claim, [{**PAIRS, "published": [1.7]}], "published"),
        (Claim, [{"what": "2BP", "published": [1.7, 1.7]}], "key 'pairs' is missing"),
        (ServingClaim, [{**SERVED, "band": "1 to 2"}], "band"),
        (ServingClaim, [{**SERVED, "measure": "largest_gains"}], "did you mean 'largest_gain'"),
    ],
)
def test_a_claim_that_cannot_be_read_says_where_and_why(kind, listed, words):
    with pytest.raises(InputError, match=words):
        claims_of({"one": listed}, kind, "f")


@pytest.mark.parametrize(
    ("figure", "given", "words"),
    [
        ("goodputs", {}, "unknown figure 'goodputs'; did you mean 'goodput'"),
        ("never", {}, "never: missing a required argument: 'name'"),
        ("goodput", {"run": "elastic"}, "goodput: got an unexpected keyword argument 'run'"),
    ],
)
def test_a_figure_that_nothing_predicts_is_refused(figure, given, words):
    claim = RunClaim(scenario="one", what="goodput", published="90 %", figure=figure, given=given)
    with pytest.raises(InputError, match=words):
        check_figure(claim, FIGURES, "f")
