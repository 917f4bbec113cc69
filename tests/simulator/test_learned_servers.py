"""Learning from measured servers: factors that made the measurements are found, and predict other loads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.result import serve
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.shared_tables import SharedTables
from simulator.site import BY_TOKENS, ServerSite
from simulator.uncertainty.servers import (
    LEARNED,
    MeasuredLoad,
    ServerLoads,
    learn_server,
    server_errors,
    statistic,
)

KINDS = ("tpot_mean", "ttft_p50")
TRUTH = ServerSite(
    source="truth",
    device="h100-sxm",
    engine="vllm-0.19",
    factors={"products": 1.05, "host": 1.3, "prefill": 1.25},
    front_s=0.03,
)


def scenario(clients, engine="vllm-0.19"):
    return {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 1,
        "workload": {
            "kind": "serving",
            "requests": 10 * clients,
            "arrivals": {"kind": "closed", "concurrency": clients},
            "input": {"kind": "fixed", "tokens": 700},
            "output": {"kind": "fixed", "tokens": 60},
        },
        "deployment": {"engine": engine, "options": {"max_context": 2048, "max_sequences": 64}},
    }


@pytest.fixture(scope="module")
def loads():
    """Loads measured on a server that has the factors of ``TRUTH``."""
    tables, found = SharedTables(2), []
    for clients in (1, 4, 16, 32):
        load = MeasuredLoad(f"c{clients}", scenario(clients), dict.fromkeys(KINDS, 1.0))
        result = serve(load.setting(TRUTH, tables))
        found.append(replace(load, measured={kind: statistic(result, kind) for kind in KINDS}))
    return found


def test_two_loads_predict_the_others(loads):
    runs = ServerLoads(loads, "test")
    shown = np.isin(runs.owner, [0, 2])
    fit = runs.fit(shown)
    after = np.abs(runs.seconds(fit.site, ~shown) / runs.measured - 1)[~shown]
    before = np.abs(runs.before / runs.measured - 1)[~shown]
    assert before.max() > 0.15
    assert after.max() < 0.35 * before.max()
    assert after.max() < 0.08
    assert (np.diag(fit.posterior.covariance) <= np.diag(runs.prior) + 1e-12).all()


def test_a_server_as_predicted_keeps_its_factors(loads):
    seconds = iter(ServerLoads(loads, "test").before)
    same = [replace(load, measured={kind: next(seconds) for kind in load.learned_from}) for load in loads]
    found = learn_server(same, "test")
    assert np.abs(found.after).max() < 1e-3
    assert all(abs(factor - 1) < 1e-3 for factor in found.site.factors.values())
    assert abs(found.site.front_s) < 1e-4
    assert len(found.prior) == len(found.posterior) == len(LEARNED)


def test_servers_of_two_engines_are_refused(loads):
    other = replace(loads[0], data=scenario(1, "vllm-0.17"))
    with pytest.raises(InputError, match="several engines"):
        learn_server([*loads, other], "test")


def test_an_odd_load_is_a_surprise(loads):
    odd = replace(loads[2], measured={kind: 3 * value for kind, value in loads[2].measured.items()})
    found = learn_server([loads[0], loads[1], odd, loads[3]], "test")
    worst = int(np.argmax(np.abs(found.surprise)))
    assert found.loads[worst] == 2


def test_errors_of_steps_are_alike_where_their_tokens_are_near():
    prior = server_errors().prior
    steps = [LEARNED.index(name) for name in BY_TOKENS]
    near, far = prior[steps[0], steps[1]], prior[steps[0], steps[-1]]
    assert 0 < far < near < prior[steps[0], steps[0]]
    assert prior[LEARNED.index("host"), steps[0]] == 0
    assert np.linalg.eigvalsh(prior).min() > 0


def test_a_site_scales_steps_by_their_tokens():
    factors = {"tokens_16": 1.2, "tokens_64": 1.44}
    site = TRUTH.model_copy(update={"factors": factors})
    found = site.by_tokens(np.array([1.0, 4.0, 16.0, 32.0, 64.0, 1024.0, 8192.0]))
    assert found == pytest.approx([1, 1, 1.2, np.sqrt(1.2 * 1.44), 1.44, 1, 1])
    assert TRUTH.by_tokens(np.array([5.0])) == 1.0


def price_of(**pool):
    cluster, engine = usual_cluster("h200-sxm"), engines.get("sglang-0.5.9")
    return StepPrice(models.get("deepseek-v3"), cluster, Pool(**pool), engine)


def test_launches_slow_steps_without_a_graph_alone():
    """SGLang 0.5.9 captures decode steps; steps with prompts are launched layer by layer."""
    launches = TRUTH.model_copy(update={"engine": "sglang-0.5.9", "factors": {"launches": 1.5}})
    plain, slower = (price_of(tensor=8, weights="fp8", site=site) for site in (None, launches))
    assert slower.eager == pytest.approx(1.5 * plain.eager)
    assert slower.gaps == plain.gaps
