"""Shares of a preset's time a layer that hold on models that a fit did not see, on made-up errors."""

import numpy as np
import pytest

from evidence.fits.fit_engines import LEAST_SLOPE, PROMPTS, Fit, prompts_of, to_ship
from evidence.fits.left_out_errors import CONSTANTS, Cell
from evidence.fits.left_out_models import (
    FEWEST,
    FEWEST_OF_MODEL,
    LAYER,
    SHARES,
    LeftOutErrors,
    TimesClass,
    expected,
    gains,
    headline,
    layer_s_unseen,
    scaled,
    shares_without,
    worse_than_alone,
)
from evidence.fits.pooled import LinearErrors, Noise
from evidence.fits.served_rows import REST, Group

DENSE = Group("vllm-0.19", "dense", "fp8", "")
EXPERTS = Group("vllm-0.19", "experts", "fp8", "")
OTHER = Group("sglang-0.5.9", "experts", "fp8", "")


def left(group, model, best, rows=FEWEST):
    """Errors that are smallest at a share."""
    return LeftOutErrors(TimesClass.of(group), model, np.outer(SHARES - best, np.ones(rows)))


def test_a_class_takes_its_own_share_and_others_that_of_all_classes():
    share = shares_without([left(DENSE, "a", 0.75), left(EXPERTS, "b", 1.0)])
    assert share(DENSE) == share(OTHER) == 0.75
    assert share(EXPERTS) == 1.0


def test_a_class_that_kernels_alone_predict_better_takes_none():
    share = shares_without([left(DENSE, "a", 1.0), left(EXPERTS, "b", 0.0)])
    assert share(DENSE) == 1.0
    # Versions of an engine are one class.
    assert share(EXPERTS) == share(EXPERTS._replace(engine="vllm-0.15")) == 0.0


def test_few_rows_contradict_nothing():
    share = shares_without([left(DENSE, "a", 1.0), left(EXPERTS, "b", 0.0, FEWEST_OF_MODEL - 1)])
    assert share(EXPERTS) == 1.0


def test_models_count_alike_whatever_their_rows():
    many, few = [left(DENSE, "a", 0.0, 500)], [left(DENSE, name, 1.0, 20) for name in "bcd"]
    assert shares_without(many + few)(DENSE) == 1.0


def test_one_model_says_less_of_its_class_the_more_models_of_a_class_differ():
    """Kernels alone are a quarter better for the only model of a class. Elsewhere all of the time is."""
    alone = left(OTHER, "x", 0.25)
    alike = [left(of, name, 1.0) for of in (DENSE, EXPERTS) for name in "ab"]
    differ = [
        left(of, name, best) for of in (DENSE, EXPERTS) for name, best in zip("abc", (0, 1, 1), strict=True)
    ]
    assert shares_without([alone, *alike])(OTHER) == 0.25
    drawn, _ = expected(gains([alone, *differ]))
    own = expected(gains([alone, *alike]))[0][TimesClass.of(OTHER)]
    assert np.all(np.abs(drawn[TimesClass.of(OTHER)][1:] - own[1:]) > 0.0)


def test_a_models_own_rows_decide_nothing_of_it():
    found = [left(EXPERTS, "a", 0.0), left(DENSE, "b", 1.0)]
    assert shares_without(found, "a")(EXPERTS) == 1.0
    assert shares_without(found)(EXPERTS) == 0.0


def test_only_the_time_a_layer_is_scaled():
    times = {DENSE: np.ones(len(CONSTANTS)), EXPERTS: 2.0 * np.ones(len(CONSTANTS))}
    found = scaled(times, lambda group: 0.5 if group is DENSE else 0.25)
    assert found[DENSE][LAYER] == 0.5 and found[EXPERTS][LAYER] == 0.5
    assert np.all(np.delete(found[EXPERTS], LAYER) == 2.0)


@pytest.mark.parametrize(
    ("fitted", "others", "ships"),
    [(3.0, 8.0, 2.0), (1.0, 8.0, 1.0), (3.0, 2.0, 0.75)],
    ids=["share of the others' time", "at most the fitted time", "share of the fitted time"],
)
def test_a_share_is_of_the_time_that_other_models_say(fitted, others, ships):
    times = {DENSE: np.full(len(CONSTANTS), fitted)}
    found = scaled(times, lambda group: 0.25, {DENSE: others})
    assert found[DENSE][LAYER] == ships
    assert np.all(np.delete(found[DENSE], LAYER) == fitted)
    assert np.all(times[DENSE] == fitted)


def test_what_other_models_say_of_a_class_is_the_mean_without_each_of_its_models():
    newer = DENSE._replace(engine="vllm-0.33")
    without = {
        name: {DENSE: np.full(len(CONSTANTS), value), newer: np.zeros(len(CONSTANTS)), EXPERTS: np.ones(6)}
        for name, value in (("a", 1.0), ("b", 3.0), ("c", 50.0))
    }
    found = layer_s_unseen([left(DENSE, "a", 0.5), left(newer, "b", 0.5)], without)
    # No model of the other class was left out, and the third has no rows of this one.
    assert found == {DENSE: 2.0, newer: 0.0}


@pytest.mark.parametrize(("rows", "worse"), [(FEWEST, True), (FEWEST - 1, False)])
def test_the_table_marks_classes_that_are_worse_than_kernels_alone(rows, worse):
    cell = Cell(DENSE, REST, "h100-sxm")
    ours, alone = ({cell: [np.full(rows, error)]} for error in (0.2, -0.1))
    lines = list(headline("model", ours, alone))
    assert "20.0 / 20.0 / +20.0" in lines[-1] and "10.0 / 10.0 / -10.0" in lines[-1]
    assert lines[-1].endswith("| yes |") == worse


def test_a_class_of_enough_rows_that_kernels_alone_predict_better_is_worse():
    def off(group, size, rows):
        return {Cell(group, REST, "h100"): [np.full(rows, size)]}

    ours = off(DENSE, 0.2, FEWEST) | off(EXPERTS, 0.2, FEWEST - 1) | off(OTHER, 0.1, FEWEST)
    alone = {cell: [np.full(len(errors[0]), -0.15)] for cell, errors in ours.items()}
    assert worse_than_alone(ours, alone) == {TimesClass.of(DENSE)}


def test_a_worse_class_ships_no_time_a_layer_and_one_whose_rows_do_not_tell_no_faster_prompts():
    groups = [DENSE, DENSE._replace(engine="vllm-0.15"), DENSE._replace(engine="vllm-0.12"), OTHER]
    times = {group: np.full(len(CONSTANTS), 0.8) for group in groups}
    ships = to_ship(times, lambda group: 0.5, {}, {TimesClass.of(OTHER)}, {prompts_of(DENSE)})
    assert [values[LAYER] for values in ships.values()] == [0.4, 0.4, 0.4, 0.0]
    # Rows of 0.19 tell of 0.15, and not of 0.12, whose host does not run ahead.
    assert [values[PROMPTS] for values in ships.values()] == [0.8, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(("slope", "told"), [(2.0 * LEAST_SLOPE, {prompts_of(DENSE)}), (0.0, set())])
def test_rows_whose_errors_do_not_vary_with_prompts_do_not_tell_of_them(slope, told):
    slopes = np.ones((1, len(CONSTANTS)))
    slopes[0, PROMPTS] = slope
    noise = Noise(np.ones(1), np.ones(1), np.zeros(1, dtype=np.int64))
    fit = Fit.__new__(Fit)
    fit.groups = [DENSE, OTHER]
    fit.evidence = [
        LinearErrors(np.ones(len(CONSTANTS)), np.zeros(rows), slopes[:rows], noise) for rows in (1, 0)
    ]
    assert fit.tell_of_prompts == told
