"""Claims about graphs, in their bands and out of them without stages; rows of recommendation models."""

import pytest

from evidence.accuracy.tables_rows import measured_rows, ratio
from evidence.claims.graph_papers import GRAPH_CLAIMS, epochs_of, predicted


@pytest.mark.parametrize("claim", GRAPH_CLAIMS, ids=lambda claim: claim.what)
def test_a_claim_is_in_its_band_and_out_of_it_without_stages(claim):
    epochs = epochs_of(claim.scenario)
    least, most = claim.band
    assert least <= predicted(claim, epochs) <= most
    assert not least <= predicted(claim, epochs | {"stages": epochs["base"]}) <= most


@pytest.mark.parametrize("row", measured_rows(), ids=lambda row: row["name"])
def test_printed_steps_are_within_a_fifth_or_say_why_not(row):
    assert (abs(ratio(row) - 1.0) <= 0.2) == ("missed" not in row)
