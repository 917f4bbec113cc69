"""Learning from measured servers: factors that made the measurements are found, and predict other loads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwmodels.errors import InputError
from simulator.serving.result import serve
from simulator.serving.steps.shared_tables import SharedTables
from simulator.site import ServerSite
from simulator.uncertainty.servers import LEARNED, MeasuredLoad, ServerLoads, learn_server, statistic

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
    assert (np.diag(fit.posterior.covariance) <= runs.prior**2 + 1e-12).all()


def test_a_server_as_predicted_keeps_its_factors(loads):
    seconds = iter(ServerLoads(loads, "test").before)
    same = [replace(load, measured={kind: next(seconds) for kind in load.chosen}) for load in loads]
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
