"""Sites: factors act on their part alone, scenarios keep them, and learning finds them in measured steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from core.errors import InputError
from simulator.plan import Plan, Plans
from simulator.scenario import make_scenario
from simulator.scenario_file import scenario_of
from simulator.site import SITE_FORMAT, Site, read_site
from simulator.training import predict, step_time
from simulator.training.memory import memory
from simulator.uncertainty import band
from simulator.uncertainty.learning import MeasuredStep, learn_site

PLAN = Plan(tensor=8, pipeline=2, data=4, micro_batch=2, sequence_parallel=True)


def site(**changed):
    values = {
        "site_format": SITE_FORMAT,
        "source": "runs.csv",
        "device": "a100-sxm-80gb",
        "framework": "megatron-core",
        "factors": {},
    }
    return Site.model_validate({**values, **changed})


def seconds(setting, plan=PLAN):
    return {name: float(part[0]) for name, part in predict(setting, Plans.of(plan)).seconds.items()}


@pytest.mark.parametrize(
    ("part", "moved"), [("products", "gemm"), ("attention", "attention"), ("memory", "norm")]
)
def test_a_factor_scales_the_kernels_of_its_part_alone(make_setting, part, moved):
    setting = make_setting()
    before = seconds(setting)
    after = seconds(replace(setting, site=site(factors={part: 2.0})))
    assert after[moved] == pytest.approx(2 * before[moved], rel=1e-6)
    for name in {"gemm", "attention", "norm"} - {moved}:
        assert after[name] == pytest.approx(before[name], rel=1e-6)


def test_links_have_a_factor_inside_nodes_and_one_across(make_setting):
    setting = make_setting()
    before, size = setting.cluster, 2.0**30
    slow = replace(setting, site=site(factors={"node": 1.5, "network": 3.0})).cluster
    for ranks, factor in ((8, 1.5), (64, 3.0)):
        times = [float(c.collective("all_gather", size, ranks)) for c in (slow, before)]
        assert times[0] == pytest.approx(factor * times[1])
    again = replace(setting, site=site(factors={"node": 1.5}), cluster=slow.resized(32))
    assert again.cluster.link_pace == (1.5, 1.0)


def test_the_exchange_with_experts_has_its_own_factor(make_setting):
    setting = make_setting(model="mixtral-8x7b", cluster="dgx-a100-80gb", devices=16)
    plan = Plan(data=16, expert=16 // 2)
    plain = seconds(setting, plan)["expert"]
    links = seconds(replace(setting, site=site(factors={"node": 2.0})), plan)["expert"]
    own = seconds(replace(setting, site=site(factors={"node": 2.0, "exchange": 3.0})), plan)["expert"]
    assert links == pytest.approx(plain)
    assert own == pytest.approx(3 * plain)


def test_the_memory_factor_scales_the_peak(make_setting):
    setting, plans = make_setting(), Plans.of(PLAN)
    peaks = []
    for asked in (setting, replace(setting, site=site(memory={"factor": 1.2}))):
        step = predict(asked, plans)
        peaks.append(float(memory(asked, plans, step.stages, step.parameters).peak[0]))
    assert peaks[1] == pytest.approx(1.2 * peaks[0])


def test_a_search_and_a_simulation_see_the_same_site(make_setting):
    asked = replace(make_setting(), site=site(factors={"products": 1.3, "network": 2.0, "host": 1.5}))
    plans = Plans.of([PLAN, Plan(tensor=4, data=16, zero=1)])
    assert step_time(asked, plans) == pytest.approx(predict(asked, plans).time)


def test_a_saved_scenario_keeps_the_site(make_setting):
    setting = replace(make_setting(), site=site(factors={"node": 1.4, "products": 1.1}))
    data = yaml.safe_load(yaml.safe_dump(scenario_of(setting, PLAN)))
    assert data["cluster"] == "dgx-a100-80gb"
    read = make_scenario(data, "saved", Path())
    assert step_time(read.setting, Plans.of(read.plan)) == pytest.approx(step_time(setting, Plans.of(PLAN)))


def test_learning_finds_what_is_slow(make_setting):
    setting = make_setting(devices=64)
    truth = replace(setting, site=site(factors={"products": 1.1, "memory": 1.4, "node": 1.5}))
    plans = [
        Plan(tensor=t, pipeline=p, data=64 // (t * p), micro_batch=m, sequence_parallel=t > 1)
        for t, p, m in ((8, 1, 1), (8, 2, 2), (4, 4, 1), (2, 8, 1), (4, 2, 2), (2, 4, 1))
    ]
    steps = [
        MeasuredStep(str(plan), setting, plan, float(step_time(truth, Plans.of(plan))[0])) for plan in plans
    ]
    found = learn_site(steps)
    assert np.abs(found.before).mean() > 0.1
    assert np.abs(found.after).mean() < 0.3 * np.abs(found.before).mean()
    assert np.abs(found.left_out).mean() < 0.5 * np.abs(found.before).mean()
    assert found.identified["memory"] or found.identified["node"]
    unseen = Plans.of(Plan(tensor=8, pipeline=4, data=2, micro_batch=1, sequence_parallel=True))
    learned = replace(setting, site=found.site)
    errors = [float(step_time(s, unseen)[0] / step_time(truth, unseen)[0]) - 1 for s in (learned, setting)]
    assert abs(errors[0]) < 0.4 * abs(errors[1])
    assert band(learned, predict(learned, unseen))[0] < band(setting, predict(setting, unseen))[0]


def test_one_odd_run_does_not_spoil_the_others(make_setting):
    setting = make_setting()
    plans = [Plan(tensor=8, data=8), Plan(tensor=8, data=8, zero=1), Plan(tensor=4, pipeline=2, data=8)]
    steps = [MeasuredStep("run", setting, p, float(step_time(setting, Plans.of(p))[0])) for p in plans]
    odd = MeasuredStep("odd", setting, plans[0], 4 * steps[0].seconds)
    found = learn_site([*steps, odd])
    assert np.abs(found.after[:3]).max() < 0.1
    assert abs(found.surprise[3]) > 2.5


@pytest.mark.slow
def test_measured_peaks_correct_the_memory(make_setting):
    setting, plans = make_setting(), Plans.of(PLAN)
    step = predict(setting, plans)
    peak = float(memory(setting, plans, step.stages, step.parameters).peak[0])
    time = float(step.time[0])
    few, many = (
        learn_site([MeasuredStep("run", setting, PLAN, time, 1.2 * peak)] * count) for count in (3, 40)
    )
    assert 1.1 < few.site.memory.factor < many.site.memory.factor
    assert many.site.memory.factor == pytest.approx(1.2, abs=0.02)
    assert learn_site([MeasuredStep("run", setting, PLAN, time)]).site.memory.factor == 1.0


def test_site_files_are_checked(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("site_format: 0\nsource: a\ndevice: h100-sxm\nframework: nemo\nfactors: {}\n")
    with pytest.raises(InputError, match="another version"):
        read_site(path.name, "site", tmp_path)
    with pytest.raises(InputError, match="is no part"):
        read_site({**site().model_dump(), "factors": {"gemm": 1.0}}, "site", tmp_path)
    with pytest.raises(InputError, match=r"from 0\.1 to 10"):
        read_site({**site().model_dump(), "factors": {"host": 99.0}}, "site", tmp_path)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[-1, 0], [0, -1]], "no variance below 0"),
        ([[1, 3], [3, 1]], "no variance below 0"),
        ([[0.1, 0.02], [0.01, 0.1]], "symmetric"),
        ([[0.1]], "2 rows of 2"),
        ([[0.1, 0.0], [0.0]], "2 rows of 2"),
        ([], "2 rows of 2"),
        ([[1e9, 0], [0, 1]], "at most 4"),
        ([[float("nan"), 0], [0, 1]], "finite"),
    ],
)
def test_a_matrix_that_is_no_covariance_is_refused(matrix, words):
    with pytest.raises(ValueError, match=words):
        site(parts=["products", "memory"], covariance=matrix)


@pytest.mark.parametrize("changed", [{"residual": 1e9}, {"residual": 0}, {"memory": {"spread": 3.0}}])
def test_errors_without_bound_are_refused(changed):
    with pytest.raises(ValueError, match=r"less than or equal to 2|greater than 0"):
        site(**changed)
