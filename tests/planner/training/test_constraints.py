"""Constraints as typed and as read from files."""

from __future__ import annotations

import pytest

from core.errors import InputError, UnknownNameError
from planner.training.constraints import Constraints, field_value, is_typed


def test_reads_each_kind_of_field():
    asked = Constraints.parse(
        ["tensor=8", "recompute=full", "schedule=interleaved", "sequence_parallel=off"], ["pipeline=16"]
    )
    assert asked.fixed == {
        "tensor": 8,
        "recompute": "full",
        "schedule": "interleaved",
        "sequence_parallel": False,
    }
    assert asked.limits == {"pipeline": 16}
    assert asked.describe() == (
        "tensor=8, recompute=full, schedule=interleaved, sequence_parallel=False, pipeline up to 16"
    )


def test_text_and_values_mean_the_same():
    typed = Constraints.parse(["zero=1", "overlap_gradients=false"], ["tensor=4"])
    assert typed == Constraints.of({"zero": 1, "overlap_gradients": False}, {"tensor": 4})


def test_drops_both_kinds_for_one_field():
    asked = Constraints.parse(["zero=1"], ["tensor=4", "pipeline=2"])
    assert asked.without("tensor") == Constraints.parse(["zero=1"], ["pipeline=2"])


@pytest.mark.parametrize(
    ("fix", "limit", "said"),
    [
        (["tensr=8"], [], "did you mean 'tensor'"),
        (["recompute=ful"], [], "did you mean 'full'"),
        (["schedule=1f1c"], [], "did you mean '1f1b'"),
        (["tensor"], [], "must be field=value"),
        (["tensor=8", "tensor=4"], [], "tensor is given twice"),
        (["tensor=eight"], [], "a whole number from 1 to 16777216, found 'eight'"),
        (["tensor=0"], [], "a whole number from 1 to 16777216, found '0'"),
        (["zero=4"], [], "a whole number from 0 to 3, found '4'"),
        (["sequence_parallel=yes"], [], "must be true or false, found 'yes'"),
        (["first_stage_layers=3"], [], "derives first_stage_layers from"),
        (["tensor=8"], ["tensor=4"], "tensor is fixed at 8 and limited to 4"),
        ([], ["recompute=full"], "fix recompute instead"),
        ([], ["pipeline=-1"], "a whole number from 1 to 16777216, found '-1'"),
        ([], ["pipelines=2"], "did you mean 'pipeline'"),
    ],
)
def test_refuses(fix, limit, said):
    with pytest.raises(InputError, match=said):
        Constraints.parse(fix, limit)


def test_an_error_names_the_key_of_a_file():
    with pytest.raises(UnknownNameError, match=r"^plan.yaml: fix.tensr: unknown plan field"):
        Constraints.of({"tensr": 8}, where="plan.yaml")


def test_a_boolean_is_not_a_number():
    with pytest.raises(InputError, match="found True"):
        Constraints.of({"tensor": True})


def test_naming_modules_asks_for_their_recomputation():
    fixed = Constraints.parse(["recompute_modules=layernorm+core_attn"]).fixed
    assert fixed == {"recompute_modules": ("core_attn", "layernorm"), "recompute": "selective"}
    kept = Constraints.parse(["recompute_modules=mlp", "recompute=none"]).fixed
    assert kept["recompute"] == "none"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sequence_parallel", "on", True),
        ("tensor", "8", 8),
        ("schedule", "1f1b", "1f1b"),
        ("recompute", "full", "full"),
    ],
)
def test_fix_and_set_read_a_field_alike(name, text, value):
    assert is_typed(name)
    assert field_value(name, text, "--set") == Constraints.parse([f"{name}={text}"]).fixed[name] == value
    assert field_value(name, value, "--set") == value
