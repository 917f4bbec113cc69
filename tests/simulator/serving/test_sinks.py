"""Attention with sinks, where the engine's own kernel has none."""

import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.price import StepPrice

TRIED = ("vllm-0.11", "a100-sxm-80gb")


def prefill_s(engine: str, device: str, *, sinks: bool, **pool) -> float:
    model = models.get("gpt-oss-20b").model_copy(update={"attention_sinks": sinks})
    price = StepPrice(model, usual_cluster(device), Pool(**pool), engines.get(engine))
    return float(price.prefill_attention(2048.0, 32000.0))


def test_attention_with_sinks_runs_in_triton_on_ampere():
    """12 full layers of 64 heads of 64 compute 27 TFLOP/s with the factor of prefill steps, 1.25."""
    flops = 12 * 4.0 * 64 * 64 * 2048 * (32000 - 1024)
    assert 1.25 * prefill_s(*TRIED, sinks=True) == pytest.approx(flops / 27e12, rel=0.1)
    assert prefill_s(*TRIED, sinks=True) > 3.0 * prefill_s(*TRIED, sinks=False)


@pytest.mark.parametrize(
    ("engine", "device"),
    [
        ("vllm-0.11", "h100-sxm"),
        ("vllm-0.11", "b200"),
        ("vllm-0.11", "l40s"),
        ("sglang-0.5.9", "a100-sxm-80gb"),
    ],
)
def test_elsewhere_sinks_cost_nothing(engine, device):
    assert prefill_s(engine, device, sinks=True) == prefill_s(engine, device, sinks=False)
