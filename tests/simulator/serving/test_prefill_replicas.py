"""Replicas that only prefill: the steady state beside the event engine."""

from pathlib import Path

import numpy as np
import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.steady import Limits, Load, steady_state
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.table import IterationTable


@pytest.mark.parametrize(("stages", "rate"), [(1, 4.0), (2, 8.0), (2, 30.0)])
def test_a_prompt_that_fills_the_budget_takes_one_step(stages, rate):
    """A decode was counted beside it, whose token left the prompt's last one to a second step: TTFT was 15 to
    26 % long."""
    setting = make_serving(
        {
            "model": "llama3.1-8b",
            "cluster": "dgx-h100",
            "workload": {
                "kind": "serving",
                "requests": 3000,
                "arrivals": {"kind": "poisson", "rate": rate},
                "input": 2048,
                "output": 1,
            },
            "deployment": {
                "weights": "bf16",
                "pipeline": stages,
                "options": {"token_budget": 2048, "max_sequences": 64, "prefix_caching": False},
            },
        },
        "test",
        Path(),
    )
    one = setting.pools[0]
    columns = serve(setting).records.columns()
    seconds = (columns["first_s"] - columns["arrival_s"])[300:].mean()
    price = StepPrice(setting.model, setting.cluster, one.pool, engines.get("vllm-0.19"))
    limits = Limits(2048, 64, one.costs.kv_blocks * one.options.block_tokens)
    state = steady_state(IterationTable(price, 2048, 64, 4096), Load(2048, 1, rate=rate), limits)
    assert float(state.ttft_s) == pytest.approx(seconds, rel=0.05)


def test_more_clients_never_shorten_prompts_that_nothing_decodes_beside():
    """Fewer clients than at the first guess took their own decodes from prompts: less than no time."""
    price = StepPrice(models.get("gpt2"), usual_cluster("a100-sxm-80gb"), Pool(), engines.get("vllm-0.19"))
    clients = np.array([1.0, 4.0, 64.0, 2048.0])
    state = steady_state(
        IterationTable(price, 2048, 256, 1024), Load(200, 1, concurrency=clients), Limits(2048, 256, 500_000)
    )
    waits = np.asarray(state.ttft_s)
    assert waits[0] > 0.0
    assert np.all(np.diff(waits) >= 0.0)
