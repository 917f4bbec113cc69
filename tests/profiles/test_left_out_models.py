"""Shares of a preset's time a layer that hold on models that a fit did not see, on made-up errors."""

import numpy as np
import pytest

from evidence.fits.left_out_errors import CONSTANTS, Cell
from evidence.fits.left_out_models import (
    FEWEST,
    LAYER,
    SHARES,
    LeftOutErrors,
    TimesClass,
    headline,
    scaled,
    shares_without,
)
from evidence.fits.served_rows import REST, Group

DENSE = Group("vllm-0.19", "dense", "fp8", "")
EXPERTS = Group("vllm-0.19", "experts", "fp8", "")
OTHER = Group("sglang-0.5.9", "experts", "fp8", "")


def left(group, model, best, rows=FEWEST):
    """Errors that are smallest at a share."""
    return LeftOutErrors(TimesClass.of(group), model, np.outer(SHARES - best, np.ones(rows)))


def test_a_class_takes_its_own_share_and_others_that_of_all_rows():
    share = shares_without([left(DENSE, "a", 0.75, 200), left(EXPERTS, "b", 1.0)])
    assert share(DENSE) == share(OTHER) == 0.75
    assert share(EXPERTS) == 1.0


def test_a_class_that_kernels_alone_predict_better_takes_none():
    share = shares_without([left(DENSE, "a", 1.0, 200), left(EXPERTS, "b", 0.0)])
    assert share(DENSE) == share(OTHER) == 1.0
    # Versions of an engine are one class.
    assert share(EXPERTS) == share(EXPERTS._replace(engine="vllm-0.15")) == 0.0


def test_few_rows_contradict_nothing():
    share = shares_without([left(DENSE, "a", 1.0, 200), left(EXPERTS, "b", 0.0, FEWEST - 1)])
    assert share(EXPERTS) == 1.0


def test_a_models_own_rows_decide_nothing_of_it():
    found = [left(EXPERTS, "a", 0.0), left(DENSE, "b", 1.0, 200)]
    assert shares_without(found, "a")(EXPERTS) == 1.0
    assert shares_without(found)(EXPERTS) == 0.0


def test_only_the_time_a_layer_is_scaled():
    times = {DENSE: np.ones(len(CONSTANTS)), EXPERTS: 2.0 * np.ones(len(CONSTANTS))}
    found = scaled(times, lambda group: 0.5 if group is DENSE else 0.25)
    assert found[DENSE][LAYER] == 0.5 and found[EXPERTS][LAYER] == 0.5
    assert np.all(np.delete(found[EXPERTS], LAYER) == 2.0)


@pytest.mark.parametrize(("rows", "worse"), [(FEWEST, True), (FEWEST - 1, False)])
def test_the_table_marks_classes_that_are_worse_than_kernels_alone(rows, worse):
    cell = Cell(DENSE, REST, "h100-sxm")
    ours, alone = ({cell: [np.full(rows, error)]} for error in (0.2, -0.1))
    lines = list(headline("model", ours, alone))
    assert "20.0 / 20.0 / +20.0" in lines[-1] and "10.0 / 10.0 / -10.0" in lines[-1]
    assert lines[-1].endswith("| yes |") == worse
