"""Claims about diffusion and graphs: in their bands, and out of them without their mechanism."""

import pytest

from evidence.claims.gain_papers import GAIN_CLAIMS, predicted, runs_of


@pytest.fixture(scope="module")
def runs():
    """Predicted runs by scenario."""
    return {name: runs_of(name) for name in {claim.scenario for claim in GAIN_CLAIMS}}


@pytest.mark.parametrize("claim", GAIN_CLAIMS, ids=lambda claim: claim.what)
def test_a_claim_is_in_its_band_or_says_why_not(claim, runs):
    least, most = claim.band
    assert (least <= predicted(claim, runs[claim.scenario]) <= most) == (not claim.missed)


@pytest.mark.parametrize("claim", GAIN_CLAIMS, ids=lambda claim: claim.what)
def test_a_claim_without_its_mechanism_falls_out_of_its_band(claim, runs):
    named = runs[claim.scenario]
    without = named | {name: named[other] for name, other in claim.without.items()}
    least, most = claim.band
    assert not least <= predicted(claim, without) <= most


OPEN = [claim for claim in GAIN_CLAIMS if claim.unstated]


@pytest.mark.parametrize("claim", OPEN, ids=lambda claim: claim.what)
def test_a_claim_is_open_where_values_of_an_unstated_input_agree_with_it_and_others_do_not(claim, runs):
    least, most = claim.unstated.band or claim.band
    figures = claim.figures(runs[claim.scenario])
    assert 0 < sum(least <= figure <= most for figure in figures.values()) < len(figures)
    assert claim.verdict(runs[claim.scenario]).startswith("not decidable")
