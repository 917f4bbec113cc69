"""Moves of weights: limits, and what each way leaves out; frameworks name catalogue entries."""

import pytest

from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.ops.counts import model_parameters
from simulator.plan import Plan
from simulator.rl.frameworks import rl_frameworks
from simulator.rl.transfers import transfers
from simulator.rl.weights import Receivers, gathered_tokens_s, tensors, weight_move
from simulator.serving.engines import engines
from simulator.setting import Setting
from simulator.workload import Training

CLUSTER = clusters.get("dgx-h100").resized(32)


def move(way, model="qwen3-30b-a3b", devices=16, weight_bytes=2.0, tensor_s=0.0, trainers=16):
    rows = Training.model_validate({"seq_len": 4096, "global_batch": 16})
    setting = Setting(models.get(model), CLUSTER.resized(trainers), rows, frameworks.get("torch-fsdp"))
    plan = Plan.model_validate({"zero": 3, "data": trainers})
    return weight_move(CLUSTER, setting, plan, transfers.get(way), Receivers(devices, weight_bytes), tensor_s)


@pytest.mark.parametrize("name", rl_frameworks.names())
def test_frameworks_name_entries_of_catalogues(name):
    system = rl_frameworks.get(name)
    assert frameworks.get(system.train) and engines.get(system.engine) and transfers.get(system.transfer)


def test_a_loader_call_for_each_tensor_takes_longest_where_there_are_experts():
    model, direct = models.get("qwen3-30b-a3b"), move("direct")
    walk = transfers.get("direct").layer_walk_s
    assert direct.load == pytest.approx(tensors(model) * model.layers * walk)
    assert direct.seconds > 3 * move("buckets").seconds


@pytest.mark.parametrize("way", transfers.names())
def test_engines_on_the_trainers_devices_get_no_broadcast(way):
    shared = move(way, devices=0)
    assert (shared.send, shared.host) == (0.0, 0.0)
    assert shared.seconds <= move(way).seconds


def test_deltas_move_their_share_of_a_checkpoint():
    files, delta = move("files"), move("delta")
    assert delta.host == pytest.approx(files.host * transfers.get("delta").share)


def test_ranks_of_a_checkpoint_engine_wait_for_each_others_copies():
    fewer, more = move("checkpoint-engine", trainers=8), move("checkpoint-engine", trainers=16)
    whole = 2.0 * model_parameters(models.get("qwen3-30b-a3b"))
    assert fewer.host > more.host > whole / CLUSTER.rates.link  # Copies up alone are shared by more nodes.


def test_unpinned_weights_are_gathered_for_every_token_and_not_before():
    rows = Training.model_validate({"seq_len": 4096, "global_batch": 16})
    setting = Setting(models.get("qwen3-8b"), CLUSTER.resized(16), rows, frameworks.get("torch-fsdp"))
    plan = Plan.model_validate({"zero": 3, "data": 16})
    hosts = {"parameters": {"host": 1.0, "prefetch": 0}, "optimizer": {"host": 1.0}}
    offloaded = Plan.model_validate({"zero": 3, "data": 16, "place": hosts, "update": {"on": "host"}})
    assert move("unpinned", devices=0).seconds == 0.0
    once, all_tokens = (gathered_tokens_s(setting, plan, tokens) for tokens in (1, 1000))
    assert all_tokens == pytest.approx(1000 * once) and once > 0
    shard = 2.0 * model_parameters(setting.model) / 16 / CLUSTER.rates.link
    assert gathered_tokens_s(setting, offloaded, 1) - once == pytest.approx(shard)
    alone = Setting(setting.model, CLUSTER.resized(1), rows, setting.framework)
    assert gathered_tokens_s(alone, Plan.model_validate({"zero": 3}), 1000) == 0.0


def test_only_a_smaller_format_is_converted():
    assert move("buckets").convert == 0.0
    assert move("buckets", weight_bytes=1.0).convert > 0.0


def test_tensors_handed_over_add_their_host_time():
    model = models.get("qwen3-30b-a3b")
    slower = move("direct", tensor_s=1e-3)
    assert slower.load - move("direct").load == pytest.approx(1e-3 * tensors(model))
