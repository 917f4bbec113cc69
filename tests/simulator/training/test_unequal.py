"""Steps over documents of unequal length: both timings, identities, memory."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.schedules import get_schedule
from simulator.schedules.walk import stretched
from simulator.training import predict, step_time
from simulator.training.step_graph.build import simulate
from simulator.training.unequal import late_step

LAW = {"kind": "lognormal", "median": 900, "sigma": 1.2, "most": 8192}


def scenario(plan=None, **workload):
    return make_scenario(
        {
            "model": "llama3.1-8b",
            "cluster": "dgx-h100",
            "gpus": 64,
            "workload": {"seq_len": 8192, "global_batch": 256} | workload,
            "plan": {"pipeline": 4, "micro_batch": 1, "zero": 1} | (plan or {}),
        },
        "question.yaml",
        Path(),
    )


def seconds(asked):
    return float(predict(asked.setting, Plans.of(asked.plan)).time[0])


def test_one_length_is_todays_step_to_the_bit():
    equal = seconds(scenario())
    for packing in ("none", "pad", "pack", "concat", "balance"):
        assert seconds(scenario(lengths=8192, packing=packing)) == equal


@pytest.mark.slow
@pytest.mark.parametrize("packing, within", [("pack", 0.01), ("balance", 0.01), ("none", 0.06)])
def test_both_timings_agree(packing, within):
    asked = scenario(lengths=LAW, packing=packing)
    assert simulate(asked.setting, asked.plan).period == pytest.approx(seconds(asked), rel=within)


def test_order_of_packings():
    """Attention inside documents costs less than over whole rows, and dealt by cost less again."""
    whole, packed, dealt = (
        seconds(asked)
        for asked in (scenario(), scenario(lengths=LAW), scenario(lengths=LAW, packing="balance"))
    )
    assert dealt < packed < whole


def test_a_search_times_as_a_prediction_does():
    asked = scenario(lengths=LAW)
    plans = Plans.of([asked.plan, scenario({"pipeline": 2}).plan, scenario({"micro_batch": 2}).plan])
    assert np.array_equal(step_time(asked.setting, plans)[:1], step_time(asked.setting, Plans.of(asked.plan)))


def test_late_steps_are_longer():
    asked = scenario(lengths=LAW)
    plans = Plans.of(asked.plan)
    step = predict(asked.setting, plans)
    assert step.time < late_step(asked.setting, plans, step.seconds) < 1.2 * step.time


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_pipeline_waits_for_its_longest_micro_batch(name):
    schedule = get_schedule(name)
    assert stretched(schedule, 4, 1, [1.0] * 8) == 1
    assert stretched(schedule, 1, 1, [0.5, 1.5]) == 1
    waits = stretched(schedule, 4, 1, [0.5, 1.5] * 4)
    # A proportionate flow shop takes the sum and p - 1 times the longest; a pipeline goes both ways.
    assert 1 < waits <= (8 + 3) * 1.5 / (8 + 3)


def test_tokens_of_a_step_stand_for_its_rows():
    asked = scenario(lengths=LAW)
    law = LAW | {"most": 16384}
    data = {"lengths": law, "tokens": 4 * 16384}
    workload = make_scenario(
        {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 8, "workload": data, "plan": {"tensor": 8}},
        "question.yaml",
        Path(),
    ).setting.training
    assert (workload.seq_len, workload.global_batch) == (16384, 4)
    assert asked.setting.training.tokens < 8192 * 256


@pytest.mark.parametrize(
    "workload, problem",
    [
        ({"packing": "pack"}, r"packing \(pack\) needs `lengths`"),
        ({"lengths": LAW, "packing": "balanc"}, "did you mean 'balance'"),
        ({"lengths": {"kind": "empirical", "tokens": [1, 2], "weights": [0, 0]}}, "not all zero"),
        ({"lengths": {"kind": "empirical", "tokens": [1, 2], "weights": [-1, 2]}}, "weights"),
        ({"tokens": 4096}, "tokens: needs `lengths`"),
    ],
)
def test_bad_lengths_are_refused(workload, problem):
    with pytest.raises(InputError, match=problem):
        scenario(**workload)
