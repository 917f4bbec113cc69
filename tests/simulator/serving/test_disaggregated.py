"""Closed loops over a prefill and a decode pool: where clients wait."""

from dataclasses import replace

import numpy as np
import pytest

from hwmodels.cluster import clusters
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steady.disaggregated import PoolSide, disaggregated
from simulator.serving.steady.kinds import ReplicaKind, table_of
from simulator.serving.steady.steady import Limits

OUTPUT = 500.0


def side_of(budget, context):
    """One GPU with a token budget, of requests of so many tokens."""
    pool = Pool(weights="bf16", engine="vllm-0.19")
    kind = ReplicaKind(models.get("llama3.1-8b"), clusters.get("dgx-h100"), pool, engines.get("vllm-0.19"))
    return PoolSide(table_of(kind, budget, 64.0, context).cases, Limits(budget, 64.0, 1e6))


@pytest.fixture(scope="module")
def side():
    return side_of(8192.0, 2048.0)


def loops(side, clients, slots):
    """The state of clients on two decode replicas of so many slots, with ample prefill replicas."""
    bounded = side._replace(limits=replace(side.limits, sequences=np.asarray(slots, dtype=float)))
    return disaggregated(side, bounded, 256.0, OUTPUT, clients, 8.0, 2.0)


def test_clients_beyond_the_slots_of_decode_replicas_wait_for_their_first_token(side):
    found = loops(side, [8.0, 12.0, 16.0], 4.0)
    free = loops(side, [8.0], 64.0)
    service = found.decode.tpot_s * OUTPUT
    waits = found.ttft_s - free.ttft_s
    assert waits[0] == pytest.approx(0.0, abs=0.02 * service[0])
    assert waits[1:] == pytest.approx(np.array([0.5, 1.0]) * service[1:], rel=0.1)


def test_slots_that_no_client_needs_change_nothing(side):
    assert loops(side, [8.0], 32.0).ttft_s == pytest.approx(loops(side, [8.0], 64.0).ttft_s)
    assert loops(side, [8.0], 32.0).decode.tpot_s == pytest.approx(loops(side, [8.0], 64.0).decode.tpot_s)


def test_queued_prompts_share_a_step_of_a_prefill_replica(side):
    alone, queued = (
        disaggregated(side, side, 32.0, 2.0, clients, 1.0, 2.0).ttft_s for clients in (1.0, 64.0)
    )
    assert alone < queued < 0.5 * 64.0 * alone


def test_prompts_of_a_step_attend_to_their_own_tokens():
    wide = side_of(32768.0, 8192.0)
    narrow = wide._replace(limits=replace(wide.limits, budget=4096.0))
    shared, alone = (
        disaggregated(pool, wide, 4096.0, 2.0, 64.0, 1.0, 2.0).prompt_s for pool in (wide, narrow)
    )
    assert shared == pytest.approx(alone, rel=0.1)
