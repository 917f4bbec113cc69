"""Wire formats, levels and copies of state."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.plan import Plan, Plans
from simulator.scenario import make_scenario
from simulator.state.wire import WIRE_FORMATS
from simulator.training.analytic import predict
from simulator.training.memory import memory
from simulator.training.sharding import Sharding
from simulator.training.state_moves import move_copy, move_state
from simulator.training.step_graph.build import simulate

ZEROPP = {
    "wire": {"gather": "int8", "reduce": "int4", "reduce_hops": 2},
    "shard": {"copy_parameters": "node"},
}
GPT = {"layers": 8, "hidden": 8192, "heads": 64, "kv_heads": 64, "feed_forward": 32768, "vocabulary": 50257}


def scenario(cluster="dgx-2", gpus=64, framework="deepspeed-zero3", **plan):
    model = {
        "name": "gpt",
        **GPT,
        "max_sequence": 2048,
        "activation": "gelu",
        "norm": "layernorm",
        "bias": True,
    }
    data = {
        "model": model | {"position": "learned", "tied_embeddings": True},
        "cluster": cluster,
        "gpus": gpus,
        "workload": {"seq_len": 1024, "global_batch": gpus, "precision": "fp16"},
        "framework": framework,
        "plan": {"zero": 3, "recompute": "full", **plan},
    }
    return make_scenario(data, "test", Path())


def moves(**plan):
    made = scenario(**plan)
    sharding = Sharding(made.setting, Plans.of(made.plan))
    dense, none = np.array([8e9]), np.zeros(1)
    gather, reduce = move_state(sharding, dense, none)
    return gather, move_copy(sharding, dense, none, 1.0, gather), reduce


def test_zeropp_sends_a_quarter_of_the_bytes_between_nodes():
    """Per parameter: 2 + 2 + 2 bytes of ZeRO-3; int8, none, int4 of a sixteenth (Wang et al. 2023)."""
    plain, changed = moves(gpus=1024), moves(gpus=1024, **ZEROPP)
    between = [cost.bytes[-1, 0] for cost in (*plain, *changed)]
    assert changed[1].bytes[-1, 0] == 0
    assert sum(between[:3]) / sum(between[3:]) == pytest.approx(4, rel=0.05)


def test_coded_bytes_are_bits_and_scales():
    assert WIRE_FORMATS["int4"].bytes == pytest.approx(0.5, rel=0.01)
    assert WIRE_FORMATS["bf16"].bytes == 2
    plain, changed = moves(), moves(wire={"gather": "int8"})
    ratio = changed[0].bytes.sum() / plain[0].bytes.sum()
    assert ratio == pytest.approx(WIRE_FORMATS["int8"].bytes / 2)


def test_a_second_copy_costs_its_share_of_memory():
    one, two = scenario(), scenario(shard={"copy_parameters": "node"})
    held = []
    for made in (one, two):
        step = predict(made.setting, Plans.of(made.plan))
        held.append(memory(made.setting, Plans.of(made.plan), step.stages, step.parameters))
    extra = held[1].parts["parameters"] - held[0].parts["parameters"]
    assert extra[0, 0] == pytest.approx(held[0].parts["parameters"][0, 0] * 64 / 16)


def test_a_lattice_of_one_level_is_zero_3():
    base, same = scenario(), scenario(shard={"parameters": "world", "gradients": "world"})
    times = [float(predict(made.setting, Plans.of(made.plan)).time[0]) for made in (base, same)]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


@pytest.mark.parametrize("plan", [ZEROPP, {"shard": {"parameters": "node", "gradients": "node"}}])
def test_closed_form_and_engine_agree(plan):
    made = scenario(**plan)
    closed = float(predict(made.setting, Plans.of(made.plan)).time[0])
    assert simulate(made.setting, made.plan).period == pytest.approx(closed, rel=0.02)


def test_three_levels_keep_passes_inside_nodes():
    """Dao et al. (arXiv 2501.04266): weights over a die pair, gradients over a node, states over all."""
    gpt = {"cluster": "frontier", "gpus": 64, "framework": "torch-fsdp"}
    made = scenario(**gpt, shard={"parameters": "die", "gradients": "node"})
    sharding = Sharding(made.setting, Plans.of(made.plan))
    gather, reduce = move_state(sharding, np.array([8e9]), np.zeros(1))
    assert gather.bytes[1:, 0].sum() == 0
    assert reduce.bytes[-1, 0] == 0
    step, nodes = predict(made.setting, Plans.of(made.plan)), 8
    assert step.sent["parameters"].bytes[-1, 0] > 0
    # A node's shards of the gradients cross the network once a step, however many micro batches it has.
    shard = float(step.parameters.total[0, 0]) / 8 * made.setting.choices.reduce_bytes
    assert step.sent["gradients"].bytes[-1, 0] == pytest.approx(shard * (1 - 1 / nodes))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"shard": {"parameters": "die"}}, "shard.parameters: dgx-2 has no level of dies"),
        ({"wire": {"gather": "fp8"}}, "wire.gather: v100-32gb does not convert to fp8; it has fp32, bf16"),
        ({"wire": {"gather": "int8"}, "zero": 1}, "needs parameters that passes gather, zero: 3"),
        ({"shard": {"parameters": "node", "gradients": "die"}}, "levels must widen"),
        ({"wire": {"gather": "int9"}}, "wire.gather"),
    ],
)
def test_refusals_name_the_key(plan, words):
    with pytest.raises(InputError, match=words):
        scenario(**plan)


def test_a_plan_without_state_fields_is_written_as_before():
    assert "wire" not in Plan().model_dump()
    assert Plan(**ZEROPP).model_dump()["wire"]["gather"] == "int8"
    plans = Plans.of([Plan(), Plan(zero=3, **ZEROPP), Plan()])
    assert [plan.wire is not None for plan in plans] == [False, True, False]


def sends(hidden=1024, send=None):
    """Seconds of sends and of all else, of four T4 on 1 Gb/s links."""
    model = {"name": "wide", "layers": 4, "hidden": hidden, "heads": hidden // 64, "kv_heads": hidden // 64}
    model |= {"feed_forward": 4 * hidden, "vocabulary": 32000, "max_sequence": 512, "activation": "gelu"}
    cluster = {"name": "volunteers", "device": "t4", "devices_per_node": 1, "nodes": 4}
    cluster |= {"levels": [{"name": "pcie", "kind": "pcie", "devices": 1, "bandwidth": 12e9}]}
    cluster |= {
        "network": {
            "fabric": "tcp",
            "nics_per_node": 1,
            "nic_gbps": 1,
            "shape": "fat-tree",
            "nodes_per_leaf": 16,
        }
    }
    data = {
        "model": {**model, "norm": "layernorm", "position": "rope", "bias": True},
        "cluster": cluster,
        "gpus": 4,
        "workload": {"seq_len": 512, "global_batch": 64, "precision": "fp16"},
        "framework": "torch-eager",
        "plan": {
            "pipeline": 4,
            "micro_batch": 4,
            "recompute": "full",
            **({"wire": {"send": send}} if send else {}),
        },
    }
    made = make_scenario(data, "test", Path())
    step = predict(made.setting, Plans.of(made.plan))
    sent = float(step.communication["pipeline"][0])
    return sent, float(sum(step.seconds[name][0] for name in ("gemm", "recompute")))


def test_wider_layers_compute_more_for_each_byte_that_they_send():
    """Square-cube law (Ryabinin et al. 2023, SWARM): computation grows with the square of the width."""
    (thin, work), (wide, more) = sends(2048), sends(8192)
    assert wide / thin == pytest.approx(4, rel=0.02)
    # Layers alone: 16 times; the output layer grows with the width, small products are slower.
    assert 8 < more / work < 16


def test_eight_bits_halve_what_a_boundary_sends():
    plain, coded = sends()[0], sends(send="int8")[0]
    assert coded / plain == pytest.approx((1 + 4 / 2048) / 2, rel=0.05)


def test_a_plan_without_sharded_parameters_may_code_what_it_sends():
    assert sends(send="int4")[0] < sends(send="int8")[0]
