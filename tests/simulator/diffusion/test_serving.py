"""Prompts over time at replicas of a diffusion model, beside queueing theory and by identities."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.diffusion.scenario import load_of, make_diffusion
from simulator.diffusion.serving import run_load

BASE = {"model": "pixart-sigma-xl", "cluster": "dgx-h100"}


def run(rate, replicas=1, batch=1, requests=2000, layout=None, **load):
    data = {
        **BASE,
        "workload": {"kind": "diffusion", "batch": batch},
        "load": {"arrivals": {"kind": "poisson", "rate": rate}, "requests": requests, **load},
        "replicas": replicas,
        "layout": layout or {},
    }
    stated, count, seed = load_of(data, "test")
    setting = make_diffusion(data, "test", Path())
    return setting, run_load(setting, stated, count, seed)


def alone():
    return run(1e-3, requests=10)[1].latencies_s.min()


def test_a_prompt_alone_takes_one_batch():
    setting, result = run(1e-3, requests=50)
    assert np.median(result.latencies_s) == pytest.approx(alone())
    assert result.batch == 1
    assert setting.workload.batch == 1


def test_waiting_is_that_of_constant_service():
    service = alone()
    for busy in (0.3, 0.6):
        result = run(busy / service, requests=20_000)[1]
        waiting = result.latencies_s.mean() - service
        # Pollaczek and Khinchine, M/D/1.
        assert waiting == pytest.approx(busy * service / (2 * (1 - busy)), rel=0.08)


def test_similar_frames_cost_nothing_and_thin_the_load():
    """Poisson arrivals thinned at random are Poisson arrivals of the lower rate: M/D/1 of those drawn."""
    service = alone()
    every, half = (run(0.6 / service, requests=20_000, similar=share)[1] for share in (0.0, 0.5))
    drawn = half.latencies_s[half.latencies_s > 0]
    assert len(drawn) == pytest.approx(10_000, rel=0.05)
    assert drawn.mean() - service == pytest.approx(0.3 * service / (2 * 0.7), rel=0.08)
    assert half.busy_s == pytest.approx(every.busy_s * len(drawn) / 20_000)
    assert half.joules < 0.8 * every.joules


def test_replicas_shorten_waiting_and_share_the_work():
    rate = 1.6 / alone()
    two, four = (run(rate, replicas)[1] for replicas in (2, 4))
    assert four.latencies_s.mean() < two.latencies_s.mean()
    assert four.busy_s == pytest.approx(two.busy_s)


def test_batches_carry_more_than_prompts_one_by_one():
    rate = 1.1 / alone()
    single, batched = run(rate)[1], run(rate, batch=8)[1]
    assert 1 < batched.batch <= 8
    assert batched.latencies_s.mean() < single.latencies_s.mean()


def test_steps_of_one_prompt_at_a_time_are_batches_of_one():
    rate = 0.7 / alone()
    batches, steps = (run(rate, batching=kind)[1] for kind in ("batches", "steps"))
    assert steps.latencies_s == pytest.approx(batches.latencies_s)


def test_prompts_join_for_nothing_where_steps_wait_for_the_host():
    layout = {"ulysses": 4}
    rate = 0.6 / run(1e-3, requests=10, layout=layout)[1].latencies_s.min()
    asked = [run(rate, batch=2, batching=kind, layout=layout)[1] for kind in ("batches", "steps")]
    batches, steps = (result.latencies_s.mean() for result in asked)
    assert steps < 0.9 * batches


def test_equal_seeds_give_equal_runs():
    first, again = run(0.5)[1], run(0.5)[1]
    assert first.latencies_s.tolist() == again.latencies_s.tolist()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"replicas": 2}, "replicas share a load"),
        ({"load": {"arrivals": {"kind": "closed", "concurrency": 2}}}, "open loop"),
        ({"load": {"arrivals": {"kind": "poisson", "rate": 1}, "latency": 0}}, "latency"),
        ({"load": {"arrivals": {"kind": "poisson", "rate": 1}, "requests": 0}}, "requests"),
    ],
    ids=["no load", "closed", "latency", "requests"],
)
def test_what_cannot_be_is_refused(changes, told):
    with pytest.raises(InputError) as caught:
        load_of({**BASE, "workload": {"kind": "diffusion"}, **changes}, "test")
    assert told in str(caught.value)


def test_nobody_joins_a_pipeline_of_patches():
    data = {**BASE, "workload": {"kind": "diffusion", "batch": 2}, "layout": {"pipefusion": 2}}
    data["load"] = {"arrivals": {"kind": "poisson", "rate": 1}, "batching": "steps"}
    stated, count, seed = load_of(data, "test")
    with pytest.raises(InputError, match=r"load\.batching"):
        run_load(make_diffusion(data, "test", Path()), stated, count, seed)
