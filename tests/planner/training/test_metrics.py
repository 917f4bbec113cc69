"""What a step time means, against published formulas and limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwmodels.cluster import clusters
from planner.training.metrics import COMMUNICATION, Metrics, step_flops_per_token
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.ops.counts import flops_per_token
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.workload import Training


@pytest.fixture
def gpt3() -> Setting:
    cluster = clusters.get("dgx-a100-80gb").resized(1024)
    training = Training(seq_len=2048, global_batch=1536)
    return Setting(models.get("gpt3-175b"), cluster, training, frameworks.get("megatron-core"))


def plans_of(*recompute: str) -> Plans:
    shape = {"tensor": 8, "pipeline": 16, "data": 8, "sequence_parallel": True}
    return Plans.of([Plan(**shape, recompute=mode) for mode in recompute])  # type: ignore[arg-type]


def test_flops_are_megatrons(gpt3):
    """Narayanan et al. 2021, appendix: 96 B s l h^2 (1 + s/6h + V/16lh) with full recomputation."""
    model, s = gpt3.model, gpt3.training.seq_len
    own, again = step_flops_per_token(gpt3, plans_of("none", "selective", "full"))
    layers, hidden, vocabulary = model.layers, model.hidden, model.vocabulary
    published = 96 * layers * hidden**2 * (1 + s / (6 * hidden) + vocabulary / (16 * layers * hidden))
    assert own + again[2] == pytest.approx(published, rel=1e-3)
    without = 72 * layers * hidden**2 * (1 + s / (6 * hidden) + vocabulary / (12 * layers * hidden))
    assert own == pytest.approx(without, rel=1e-3)
    # Korthikanti et al. 2022, section 5: selective repeats 4 s h of the 24 h^2 + 4 s h of each layer.
    assert again[1] == pytest.approx(4 * layers * s * hidden, rel=1e-3)
    assert again[0] == 0


def test_utilisation_is_flops_over_peak(gpt3):
    plans = plans_of("none", "full")
    step = predict(gpt3, plans)
    found = Metrics.of(gpt3, plans, step)
    flops = 3 * float(flops_per_token(gpt3.model, 2048)) * gpt3.training.tokens
    np.testing.assert_allclose(found.model_flops_utilisation, flops / step.time / (1024 * 312e12))
    assert found.hardware_flops_utilisation[0] == found.model_flops_utilisation[0]
    assert found.hardware_flops_utilisation[1] > found.model_flops_utilisation[1]
    assert np.all(found.hardware_flops_utilisation < 1)


def test_money_energy_and_rates_agree(gpt3):
    plans = plans_of("none", "full")
    found, cluster = Metrics.of(gpt3, plans, predict(gpt3, plans)), gpt3.cluster
    per_s = found.tokens_per_s_per_device * 1024
    np.testing.assert_allclose(per_s * found.step_time_s, gpt3.training.tokens)
    np.testing.assert_allclose(found.tokens_per_day, per_s * 86400)
    hour = cluster.price_per_hour_usd
    np.testing.assert_allclose(found.usd_per_million_tokens * per_s * 3600 / 1e6, hour)
    watts = found.kwh_per_million_tokens * 3.6e6 * per_s / 1e6
    assert np.all(watts > cluster.power_watts(0.0))
    assert np.all(watts < cluster.power_watts(1.0))


def test_shares_are_parts_of_the_step(gpt3):
    plans = plans_of("none", "full")
    step = predict(gpt3, plans)
    found = Metrics.of(gpt3, plans, step)
    exposed = sum(step.seconds[name] for name in COMMUNICATION if name in step.seconds)
    np.testing.assert_allclose(found.exposed_communication_share * step.time, exposed)
    assert np.all(found.bubble_share > 0)
    assert np.all(found.bubble_share + found.exposed_communication_share < 1)


def test_waiting_draws_less_power(gpt3):
    """A smaller batch leaves a larger bubble, in which devices idle."""
    watts = []
    for batch in (1536, 64):
        setting = replace(gpt3, training=Training(seq_len=2048, global_batch=batch))
        plans = plans_of("none")
        found = Metrics.of(setting, plans, predict(setting, plans))
        watts.append(found.kwh_per_million_tokens[0] * found.tokens_per_s_per_device[0])
    assert watts[1] < 0.9 * watts[0]
