"""Settings that several tests start from."""

from __future__ import annotations

import pytest

from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.levers import LEVERS
from simulator.models import models
from simulator.setting import Setting
from simulator.workload import Training


def changed(framework, changes):
    """A framework with other keys (those of a part as a mapping), and other defaults of levers."""
    levers = {name: value for name, value in changes.items() if name in LEVERS}
    keys = {name: value for name, value in changes.items() if name not in LEVERS}
    return framework.changed({**keys, "defaults": levers})


@pytest.fixture(scope="session")
def make_setting():
    """A factory of settings by catalogue names."""

    def make(
        model="gpt-22b-test",
        cluster="dgx-a100-80gb",
        devices=64,
        framework="megatron-core",
        seq_len=2048,
        global_batch=64,
        precision="bf16",
        **changes,
    ):
        name = "korthikanti-22b" if model == "gpt-22b-test" else model
        chosen = clusters.get(cluster) if isinstance(cluster, str) else cluster
        training = Training(seq_len=seq_len, global_batch=global_batch, precision=precision)
        return Setting(
            models.get(name),
            chosen.resized(devices),
            training,
            changed(frameworks.get(framework), changes),
        )

    return make
