"""KV that is not all in device memory, or not all read."""

from pathlib import Path

import pytest

from core.errors import InputError, UnknownNameError
from simulator.serving.kv_states import states
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()
WORKLOAD = {
    "kind": "serving",
    "requests": 60,
    "arrivals": {"kind": "burst"},
    "input": 2000,
    "output": 200,
}
POOL = {"replicas": 2}
APART = [{"role": "prefill"}, {"role": "decode", "state": {"kind": "attention-ffn"}}]


def setting(state=None, pools=(), **deployment):
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": WORKLOAD,
        "deployment": {"options": {"max_context": 4096, "max_sequences": 128}, **deployment},
    }
    if state is not None:
        kind, options = state
        data["deployment"]["state"] = {"kind": kind, "options": options}
    if pools:
        data["deployment"]["pools"] = list(pools)
    return make_serving(data, "test", Path(), TABLES)


def steps(kind, **options):
    return setting((kind, options)).pools[0].costs.steps


PLAIN = setting().pools[0].costs
BATCHES = [((), 32, 32 * 2000), (((512, 1000),), 32, 32 * 2000), (((300, 0),), 0, 0)]
INERT = {
    "evicted": {"kept": 1.0},
    "sparse-host": {"kept": 1.0, "resident": 1.0, "missed": 0.0},
}


@pytest.mark.parametrize("kind", INERT)
def test_all_kv_kept_in_memory_changes_no_byte(kind):
    same = setting((kind, INERT[kind]))
    assert same.pools[0].costs.kv_blocks == PLAIN.kv_blocks
    assert [same.pools[0].costs.steps.step(*batch) for batch in BATCHES] == [
        PLAIN.steps.step(*batch) for batch in BATCHES
    ]
    ours, theirs = (serve(one).records.columns() for one in (same, setting()))
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


@pytest.mark.parametrize("kind", [name for name in states if not name.startswith("attention-")])
def test_stretches_are_sums_of_steps(kind):
    state = steps(kind)
    for decodes, kv_tokens in ((1, 900), (7, 7 * 300), (64, 64 * 2000), (128, 128 * 3000)):
        first, growth, count = state.stretch(decodes, kv_tokens)
        for number in {0, (count - 1) // 2, count - 1}:
            step = state.step((), decodes, kv_tokens + number * decodes)
            # Whole tokens are read: a share of them is rounded down in a step.
            assert first + growth * number == pytest.approx(step, rel=1e-4)


def test_bytes_over_the_link_take_their_time():
    state = steps("offloaded", place="nvme", gigabytes=500)
    replica, kv_tokens = state.replica, 64 * 4000
    away = state.state.away_s(replica, 64, kv_tokens, 64)
    assert away == pytest.approx(kv_tokens * PLAIN.kv_token_bytes / (replica.cluster.rates.ssd_read / 8))
    assert state.step((), 64, kv_tokens) == away > PLAIN.steps.step((), 64, kv_tokens)


def test_less_kv_is_less_to_read_and_room_for_more():
    half = setting(("evicted", {"kept": 0.5})).pools[0].costs
    assert half.kv_blocks == 2 * PLAIN.kv_blocks
    assert half.steps.step((), 64, 64_000) == PLAIN.steps.step((), 64, 32_000)


def test_a_faster_drive_inside_computes_attention_sooner():
    slow, fast = (steps("in-storage", internal_bytes_s=rate) for rate in (5e9, 10e9))
    saved = slow.step((), 32, 64_000) - fast.step((), 32, 64_000)
    assert saved == pytest.approx(64_000 * PLAIN.kv_token_bytes / 10e9)


def pooled(in_flight=2, **pool):
    state = {"kind": "attention-pool", "options": {"in_flight": in_flight}}
    return setting(pools=[{"role": "mixed", "state": state}, {"role": "attention", **pool}])


def test_two_batches_in_flight_are_never_slower_than_one_and_no_faster_than_either_side():
    one, two = (pooled(count, replicas=2).pools[0].costs.steps for count in (1, 2))
    for decodes in (2, 16, 128):
        kv_tokens = decodes * 3000
        away = one.state.away_s(one.replica, decodes, kv_tokens, decodes)
        assert two.step((), decodes, kv_tokens) <= one.step((), decodes, kv_tokens)
        assert two.step((), decodes, kv_tokens) >= 0.99 * away


def test_attention_devices_are_paid_for_and_hold_the_kv():
    with_pool = pooled(replicas=2)
    assert with_pool.gpus == 3
    assert [pool.name for pool in with_pool.pools] == ["mixed"]
    assert with_pool.pools[0].costs.kv_blocks > 2 * PLAIN.kv_blocks
    ours, alone = serve(with_pool).metrics, serve(setting()).metrics
    price = ours.dollars_per_million / alone.dollars_per_million
    assert price == pytest.approx(3 * alone.output_rate / ours.output_rate, rel=0.05)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"state": ("evict", {})}, UnknownNameError, "evicted"),
        ({"state": ("evicted", {"kept": 0})}, InputError, "kept"),
        ({"state": ("attention-pool", {})}, InputError, "pool of role attention"),
        ({"pools": [{"role": "attention"}]}, InputError, "role decode or mixed"),
        ({"pools": [POOL, {"role": "attention", "replicas": 3}]}, InputError, "multiples of 2"),
        ({"pools": [{}, {"role": "attention", "pipeline": 2}]}, InputError, "tensor"),
        ({"pools": [{"state": {"kind": "attention-ffn"}}, {"role": "attention"}]}, InputError, "role decode"),
        ({"pools": [*APART, {"role": "attention", "replicas": 2}], "data": 2}, InputError, "data 2"),
        ({"state": ("attention-ffn", {"in_flight": 1})}, InputError, "in_flight"),
    ],
)
def test_senseless_states_are_refused(change, error, says):
    with pytest.raises(error, match=says):
        setting(**change)


def test_processors_compute_attention_where_they_read_faster_than_the_link():
    plain, slow = steps("offloaded"), steps("offloaded", cpu_bytes_s=1e9)
    fast, faster = (steps("offloaded", cpu_bytes_s=rate) for rate in (2e11, 4e11))
    batch = ((), 64, 64 * 3000)
    assert slow.step(*batch) == plain.step(*batch)
    assert faster.step(*batch) < fast.step(*batch) < 0.5 * plain.step(*batch)
    # Drives have no processors, and prompts are written as before.
    drives, helped = (steps("offloaded", place="nvme", cpu_bytes_s=rate) for rate in (0.0, 2e11))
    assert helped.step(*batch) == drives.step(*batch)
    assert fast.step(((300, 0),), 0, 0) == plain.step(((300, 0),), 0, 0)
