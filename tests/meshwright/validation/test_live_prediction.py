"""The prediction side of the closed loop: the same model, the same work, on a machine made of points."""

from dataclasses import replace

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.device import devices
from meshwright.validation.live_config import SIZES, LiveConfig
from meshwright.validation.live_prediction import predict_step, setting_of
from meshwright.validation.local_machine import local_cluster
from simulator.ops.counts import model_parameters

CONFIG = LiveConfig(
    device="cuda", layers=4, hidden=1024, heads=16, sequence=1024, vocabulary=8192, dtype="bf16"
)
LINKS = (1e9, "pcie4")


def cluster(count=1, name="h100-sxm"):
    return local_cluster(devices.get(name), count, LINKS)


@pytest.mark.parametrize("size", ["small", "medium", "large"])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_both_sides_mean_the_same_model(kind, size):
    config = SIZES[kind][size]
    setting = setting_of(replace(config, dtype="bf16"), cluster())
    assert model_parameters(setting.model) == config.parameters()
    assert setting.training.tokens == config.tokens_per_step


def test_operators_are_those_of_the_profiler_and_make_up_the_step():
    step = predict_step(CONFIG, cluster())
    assert {"gemm", "attention", "norm", "activation", "cross_entropy", "optimizer"} <= set(step.operators)
    assert "collective" not in step.operators
    assert 0.5 * step.seconds < sum(step.operators.values()) <= step.seconds
    assert 0 < step.band < 1


@pytest.mark.parametrize(
    ("parallelism", "changes"), [("ddp", {}), ("fsdp", {}), ("pipeline", {"micro_batches": 8})]
)
def test_two_devices_communicate(parallelism, changes):
    alone = predict_step(CONFIG, cluster())
    config = replace(CONFIG, devices=2, parallelism=parallelism, **changes)
    assert config.tokens_per_step == setting_of(config, cluster(2)).training.tokens
    step = predict_step(config, cluster(2))
    assert step.operators["collective"] > 0
    if parallelism != "pipeline":
        assert step.seconds > alone.seconds
        assert step.operators["gemm"] == pytest.approx(alone.operators["gemm"])


def test_gradients_add_up_from_the_second_micro_batch_on():
    """Autograd keeps the first gradient; each further micro batch reads two and writes one."""
    elementwise = [
        predict_step(replace(CONFIG, micro_batches=m), cluster()).operators["elementwise"] for m in (1, 2, 3)
    ]
    per_micro_batch = np.diff(elementwise)
    assert per_micro_batch[1] == pytest.approx(per_micro_batch[0], rel=0.01)
    assert per_micro_batch[0] > elementwise[0]


def test_wider_numbers_make_the_optimizer_move_more():
    narrow, wide = (
        predict_step(replace(CONFIG, dtype=dtype), cluster()).operators["optimizer"]
        for dtype in ("bf16", "fp32")
    )
    assert wide == pytest.approx(2 * narrow, rel=0.05)


def test_a_format_that_the_device_lacks_is_refused():
    with pytest.raises(InputError, match=r"a100-sxm-80gb has no .fp8."):
        predict_step(replace(CONFIG, dtype="fp8"), cluster(name="a100-sxm-80gb"))
