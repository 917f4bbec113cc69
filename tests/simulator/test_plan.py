"""Plans: consistency of one, and arrays of many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from core.loading import build
from simulator.plan import Choice, Plan, Plans

plans = st.builds(
    Plan,
    tensor=st.sampled_from([2, 4, 8]),
    pipeline=st.integers(1, 16),
    virtual_pipeline=st.integers(1, 4),
    context=st.sampled_from([1, 2]),
    data=st.integers(1, 64),
    micro_batch=st.integers(1, 8),
    schedule=st.sampled_from(["1f1b", "gpipe", "interleaved"]),
    sequence_parallel=st.booleans(),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(Choice["recompute"]),
    context_algorithm=st.sampled_from(Choice["context_algorithm"]),
    overlap_tensor=st.sampled_from(Choice["overlap_tensor"]),
    overlap_expert=st.booleans(),
    rank_order=st.sampled_from(Choice["rank_order"]),
)


@given(st.lists(plans, min_size=1, max_size=8))
def test_arrays_hold_what_went_in(listed):
    assert list(Plans.of(listed)) == listed


@given(st.lists(plans, min_size=1, max_size=12))
def test_unique_rows_rebuild_the_columns_they_were_made_from(listed):
    arrays = Plans.of(listed)
    rows, inverse = arrays.unique("tensor", "micro_batch", "recompute")
    for name in ("tensor", "micro_batch", "recompute"):
        assert np.array_equal(getattr(rows, name)[inverse], getattr(arrays, name))
    combinations = {(p.tensor, p.micro_batch, p.recompute) for p in listed}
    assert len(rows) == len(combinations)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sequence_parallel": True}, "sequence_parallel needs tensor > 1"),
        ({"data": 4, "shard_group": 3}, "shard_group 3 does not divide"),
        ({"data": 4, "expert": 3}, "does not divide"),
        ({"recompute": "ful"}, "did you mean 'full'"),
        ({"tensr": 2}, "did you mean 'tensor'"),
        ({"tensor": "8"}, "tensor"),
    ],
)
def test_inconsistent_plans_are_refused_with_the_reason(fields, words):
    with pytest.raises(InputError, match=words):
        build(Plan, fields, "plan.yaml")


def test_the_shorthand_differs_between_ways_to_exchange_keys():
    one = {"tensor": 2, "context": 4, "data": 1}
    assert Plan(**one).describe() == "TP2 PP1 CP4 DP1"
    assert Plan(**one, context_algorithm="ulysses").describe() == "TP2 PP1 CP4(ulysses) DP1"


def test_wide_keys_are_numbered_as_narrow_ones():
    """Keys above ``TABLE`` are sorted, below it counted; both find the same rows."""
    listed = [Plan(tensor=2, data=2**shift, pipeline=2**place) for shift in range(12) for place in (0, 11, 0)]
    rows, inverse = Plans.of(listed).unique("data", "pipeline", "micro_batch")
    assert len(rows) == 24
    assert [(row.data, row.pipeline) for row in (rows.plan(int(i)) for i in inverse)] == [
        (plan.data, plan.pipeline) for plan in listed
    ]


def test_plans_by_schedule_cover_every_plan_once():
    listed = [Plan(schedule=name, pipeline=2) for name in ("1f1b", "gpipe", "1f1b")]
    arrays = Plans.of(listed)
    found = {name: np.arange(3)[chosen].tolist() for name, chosen in arrays.by_schedule}
    assert found == {"1f1b": [0, 2], "gpipe": [1]}
    assert arrays.take(np.array([0, 2])).by_schedule == [("1f1b", slice(None))]
