"""The training side of the closed loop: it trains, its layouts agree, and gaps add up."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from core.errors import InputError
from meshwright.validation.live import PredictedStep, compare, train
from meshwright.validation.live_config import SIZES, LiveConfig
from meshwright.validation.live_training import MeasuredSteps, build, operator_kind, operator_seconds

torch = pytest.importorskip("torch")

TINY = LiveConfig(layers=2, hidden=32, heads=2, sequence=16, vocabulary=64, micro_batch=2, threads=1)


@pytest.fixture(scope="module")
def measured():
    return train(TINY, 3)


def test_a_step_is_measured_and_divided_into_operators(measured):
    assert len(measured.seconds) == 3
    assert measured.step_seconds > 0
    assert {"gemm", "attention", "norm", "activation", "cross_entropy", "optimizer"} <= set(
        measured.operators
    )
    assert all(seconds > 0 for seconds in measured.operators.values())
    # what runs inside operators cannot be longer than the steps it ran in
    assert sum(measured.operators.values()) <= measured.profiled_seconds


def test_an_untrained_model_knows_nothing(measured):
    assert measured.loss == pytest.approx(np.log(TINY.vocabulary), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp"])
def test_data_parallel_ranks_learn_what_one_learns(measured, parallelism):
    """Every rank has the same sequences here, so averaging the gradients changes nothing."""
    together = train(replace(TINY, devices=2, parallelism=parallelism), 3)
    assert together.loss == pytest.approx(measured.loss, rel=1e-4)
    assert together.operators["collective"] > 0


@pytest.mark.slow
def test_a_pipeline_trains():
    found = train(replace(TINY, devices=2, parallelism="pipeline", micro_batches=4), 1)
    assert found.loss == pytest.approx(np.log(TINY.vocabulary), rel=0.15)


@pytest.mark.parametrize("config", [TINY, SIZES["cpu"]["medium"]])
def test_parameters_are_counted(config):
    model = build(config, config.layers)
    assert sum(parameter.numel() for parameter in model.parameters()) == config.parameters()


def test_stages_together_are_the_model():
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    stages = [build(TINY, 1, last=False), build(TINY, 1, first=False)]
    assert sum(map(count, stages)) == TINY.parameters()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "gemm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::native_layer_norm_backward", "norm"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::_log_softmax", "cross_entropy"),
        ("aten::_fused_adamw_", "optimizer"),
        ("c10d::allreduce_", "collective"),
        ("gloo:all_reduce", "collective"),
        ("aten::add_", "elementwise"),
        ("aten::as_strided", "other"),
    ],
)
def test_kinds_of_operators(name, kind):
    assert operator_kind(name) == kind


def test_gaps_add_up_to_that_of_the_step():
    operators = {"gemm": 0.6, "attention": 0.2}
    measured = MeasuredSteps(TINY, "cpu", (0.9, 1.0, 1.3), operators, 1.1, 0, 4.0)
    predicted = PredictedStep(1.15, {"gemm": 0.7, "collective": 0.05})
    step, *operators = compare(measured, predicted)
    assert (step.operator, step.relative) == ("step", pytest.approx(0.15))
    assert sum(gap.share_of_step for gap in operators) == pytest.approx(step.share_of_step)
    assert [gap.operator for gap in operators] == ["attention", "overhead", "gemm", "collective"]
    assert operators[-1].relative == float("inf")


def test_the_true_step_has_no_gap():
    # Made, not measured: operators of a profiled step may take longer than a step without the profiler.
    measured = MeasuredSteps(TINY, "cpu", (0.9, 1.0, 1.3), {"gemm": 0.6, "attention": 0.2}, 1.1, 0, 4.0)
    perfect = PredictedStep(measured.step_seconds, measured.operators)
    assert all(abs(gap.relative) < 1e-9 for gap in compare(measured, perfect))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 33}, "hidden 33 does not divide into 2 heads"),
        ({"devices": 2}, "'single' does not go with 2 devices"),
        ({"parallelism": "ddp"}, "'ddp' does not go with 1 devices"),
        ({"parallelism": "pipeline", "devices": 3}, "2 layers do not divide into 3 stages"),
        ({"parallelism": "pipeline", "devices": 2}, "at least as many micro-batches"),
    ],
)
def test_wrong_configurations(changes, message):
    with pytest.raises(InputError, match=message):
        replace(TINY, **changes)


def test_wrong_requests():
    with pytest.raises(InputError, match="at least one step"):
        train(TINY, 0)
    with pytest.raises(InputError, match="has no fp16"):
        train(replace(TINY, dtype="fp16"), 1)
    with pytest.raises(InputError, match="no such device"):
        train(replace(TINY, device="npu"), 1)


def event(key, on, device=0.0, cpu=0.0):
    return SimpleNamespace(
        key=key,
        device_type=SimpleNamespace(name=on),
        self_device_time_total=device,
        self_cpu_time_total=cpu,
    )


def test_a_kernel_counts_once_for_the_operator_that_launched_it():
    events = [
        event("aten::native_layer_norm", "CPU", device=100.0, cpu=10.0),
        event("void vectorized_layer_norm_kernel<float>(...)", "CUDA", device=100.0),
        event("aten::copy_", "CPU", device=30.0, cpu=5.0),
        event("Memcpy DtoD (Device -> Device)", "CUDA", device=30.0),
        event("Optimizer.step#AdamW.step", "CUDA", device=500.0),
        event("cudaLaunchKernel", "CPU", cpu=50.0),
    ]
    assert operator_seconds(events, on_gpu=True) == pytest.approx({"copy": 30e-6, "norm": 100e-6})
    assert operator_seconds(events, on_gpu=False) == pytest.approx({"copy": 5e-6, "norm": 10e-6})


def test_operators_longer_than_the_step_leave_no_negative_overhead(measured):
    slow = replace(measured, operators={name: 100 * value for name, value in measured.operators.items()})
    gaps = {gap.operator: gap for gap in compare(slow, PredictedStep(1.0, {"gemm": 0.5}))}
    assert gaps["overhead"].measured == pytest.approx(0.0, abs=1e-9)
    assert min(gap.measured for gap in gaps.values()) >= 0
    operators = sum(gap.measured for name, gap in gaps.items() if name != "step")
    assert operators == pytest.approx(measured.step_seconds)
