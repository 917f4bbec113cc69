"""Plans on the engine: the same costs as the analytic prediction, and nearly the same step."""

from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.layout.stages import FIRST, LAST
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.schedules import get_schedule, schedules
from simulator.schedules.dualpipe import DualPipe
from simulator.training import predict
from simulator.training.memory import memory
from simulator.training.step_graph import Replicas, run
from simulator.training.step_graph.account import account
from simulator.training.step_graph.build import simulate, step_program
from simulator.training.step_graph.output import output_work
from simulator.training.step_graph.step import NO_LOAD
from simulator.training.step_graph.streams import COMPUTE, CONTEXT, DATA, TENSOR

GPT3 = ("gpt3-175b", "dgx-a100-80gb", 512, 2048, 384)
LLAMA = ("llama3-8b", "dgx-h100", 64, 8192, 128)
DATA_INSIDE = "tensor-context-data-pipeline"
CASES = {
    "1f1b": (*GPT3, {"tensor": 8, "pipeline": 16}),
    "interleaved": (*GPT3, {"tensor": 8, "pipeline": 8, "virtual_pipeline": 4}),
    "interleaved, sequence parallel, sharded optimizer": (
        *GPT3,
        {
            "tensor": 8,
            "pipeline": 8,
            "virtual_pipeline": 3,
            "sequence_parallel": True,
            "recompute": "selective",
            "zero": 1,
        },
    ),
    "nothing overlaps": (
        *GPT3,
        {
            "tensor": 8,
            "pipeline": 16,
            "overlap_tensor": "none",
            "overlap_pipeline": False,
            "overlap_gradients": False,
            "overlap_parameters": False,
            "zero": 1,
        },
    ),
    "gpipe, full recompute": (*GPT3, {"tensor": 8, "pipeline": 8, "schedule": "gpipe", "recompute": "full"}),
    "breadth-first": (
        *GPT3,
        {"tensor": 8, "pipeline": 8, "virtual_pipeline": 2, "schedule": "breadth-first", "recompute": "full"},
    ),
    "breadth-first, FSDP": (
        *LLAMA,
        {
            "pipeline": 4,
            "virtual_pipeline": 2,
            "schedule": "breadth-first",
            "zero": 3,
            "rank_order": DATA_INSIDE,
        },
    ),
    "breadth-first, ZeRO-2": (
        *LLAMA,
        {
            "pipeline": 4,
            "virtual_pipeline": 2,
            "schedule": "breadth-first",
            "zero": 2,
            "rank_order": DATA_INSIDE,
        },
    ),
    "uneven stages": (
        *GPT3,
        {"tensor": 8, "pipeline": 16, "first_stage_layers": 6, "last_stage_layers": 6},
    ),
    "FSDP": (*LLAMA, {"zero": 3}),
    "FSDP, gathers on demand": (*LLAMA, {"zero": 3, "overlap_parameters": False}),
    "FSDP, reductions waited for": (*LLAMA, {"zero": 3, "overlap_gradients": False}),
    "FSDP, nothing overlaps": (
        *LLAMA,
        {"zero": 3, "overlap_parameters": False, "overlap_gradients": False},
    ),
    "hybrid sharding": (*LLAMA, {"zero": 3, "shard_group": 8}),
    "ZeRO-2": (*LLAMA, {"zero": 2, "recompute": "full"}),
    "DDP": (*LLAMA, {"zero": 0, "tensor": 4, "sequence_parallel": True}),
    "DDP, gradients copied into buckets and added up": (*LLAMA, {"zero": 0}, "torch-eager"),
    "context parallel": (*LLAMA, {"zero": 1, "tensor": 2, "context": 2, "sequence_parallel": True}),
    "experts": (
        "mixtral-8x7b",
        "dgx-h100",
        64,
        4096,
        256,
        {"tensor": 2, "sequence_parallel": True, "expert": 8, "pipeline": 4, "zero": 1},
    ),
    "experts, exchanged beside kernels": (
        "qwen3-30b-a3b",
        "dgx-h100",
        64,
        4096,
        256,
        {"expert": 16, "pipeline": 4, "virtual_pipeline": 2, "zero": 1, "overlap_expert": True},
    ),
}


def scenario(model, cluster, gpus, seq_len, global_batch, plan, framework="megatron-core"):
    data = {
        "framework": framework,
        "model": model,
        "cluster": cluster,
        "gpus": gpus,
        "workload": {"seq_len": seq_len, "global_batch": global_batch},
        "plan": plan,
    }
    made = make_scenario(data, "test", Path("."))
    return made.setting, made.plan


def root_a_device():
    """DGX A100 whose devices do not share PCIe switches: copies to the host have a link each."""
    cluster = clusters.get("dgx-a100-80gb").model_dump(mode="json", exclude={"device"}, exclude_defaults=True)
    return {**cluster, "device": "a100-sxm-80gb", "node": {**cluster["node"], "pcie_roots": 8}}


@pytest.mark.parametrize("name", CASES)
def test_engine_and_analytic_prediction_agree(name):
    setting, plan = scenario(*CASES[name])
    timeline = simulate(setting, plan)
    step = predict(setting, Plans.of(plan))
    assert timeline.period == pytest.approx(float(step.time[0]), rel=0.02)
    assert timeline.period == pytest.approx(timeline.seconds)


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "gpipe, full recompute", "experts"])
def test_engine_and_memory_model_agree(name):
    setting, plan = scenario(*CASES[name])
    timeline = simulate(setting, plan)
    plans = Plans.of(plan)
    step = predict(setting, plans)
    held = memory(setting, plans, step.stages, step.parameters)
    assert timeline.peak_memory(0) == pytest.approx(sum(held.breakdown(0, FIRST).values()), rel=0.01)
    assert timeline.peak_memory(plan.pipeline - 1) == pytest.approx(
        sum(held.breakdown(0, LAST).values()), rel=0.05
    )


def test_loads_say_which_links_communication_fills():
    setting, plan = scenario(*CASES["1f1b"])
    program = step_program(setting, plan)
    inside = {
        (each.stream, each.load.level)
        for work in program.work
        for each in work.forward
        if each.load.share and not each.name.startswith(("forward embedding", "forward output"))
    }
    assert inside == {(TENSOR, "nvlink")}
    (reduction, *_) = program.work[1].reductions
    assert reduction.work.load.level == program.transfer.load.level == "network"
    # Buckets of 80 MB are set by the wire, a boundary tensor of 6 MB by latency too.
    assert 0.95 < reduction.work.load.share <= 1
    assert 0.3 < program.transfer.load.share < 0.95


def test_sends_share_the_network_with_reductions_and_with_nothing_else():
    """Interleaved stages send while their first chunks' gradients are reduced; 1F1B's have sent by then."""

    def without_links(program):
        return replace(
            program,
            transfer=replace(program.transfer, load=NO_LOAD),
            work=tuple(
                replace(
                    each,
                    reductions=tuple(replace(a, work=replace(a.work, load=NO_LOAD)) for a in each.reductions),
                )
                for each in program.work
            ),
        )

    changed = {}
    for name in ("nothing overlaps", "interleaved"):
        program = step_program(*scenario(*CASES[name]))
        shared, alone = run(program), run(without_links(program))
        changed[name] = shared.ends.tobytes() != alone.ends.tobytes()
        assert shared.period >= alone.period
        assert shared.period == pytest.approx(alone.period, rel=0.01)
    assert changed == {"nothing overlaps": False, "interleaved": True}


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_a_last_stage_without_layers_holds_and_reduces_the_output_layer(schedule):
    plan = {"pipeline": 8, "last_stage_layers": -1, "first_stage_layers": 8, "schedule": schedule}
    setting, made = scenario("llama3-8b", "dgx-h100", 64, 8192, 128, plan)
    program = step_program(setting, made)
    assert [len({each.segment for each in work.reductions}) > 0 for work in program.work] == [True] * 8
    (reduction,) = {each.work for each in program.work[-1].reductions}
    held = setting.model.vocabulary * setting.model.hidden * setting.choices.reduce_bytes
    sent = sum(size for _, size in reduction.load.sent) * len(program.work[-1].reductions)
    assert sent == pytest.approx(2 * 7 / 8 * held, rel=0.01)
    timeline = run(program)
    assert timeline.busy(7, COMPUTE) < timeline.busy(6, COMPUTE)
    assert timeline.busy(7, DATA) > 0
    if schedule == "1f1b":
        assert timeline.period == pytest.approx(float(predict(setting, Plans.of(made)).time[0]), rel=0.02)


def test_ring_attention_between_nodes_is_slower_beside_reductions():
    """Keys and values, gathers and reductions of full sharding go through the same NICs."""
    plan = {"tensor": 8, "context": 4, "sequence_parallel": True, "zero": 3}
    program = step_program(*scenario("llama3-8b", "dgx-h100", 64, 32768, 16, plan))
    levels = {(each.stream, each.load.level) for each in program.work[0].forward if each.load.share}
    assert levels == {(CONTEXT, "network"), (TENSOR, "nvlink")}
    timeline = run(program)
    spans = [
        each.end - each.start for each in timeline.intervals(0, CONTEXT) if each.name.startswith("backward")
    ]
    # The first layer's ring has no reduction beside it yet.
    assert min(spans) == pytest.approx(spans[0])
    assert spans[1] > 1.3 * spans[0]


@pytest.mark.slow
def test_schedules_without_closed_form_run_too():
    times = {}
    for schedule in ("1f1b", "zb-1p", "zb-2p"):
        setting, plan = scenario(*GPT3, {"tensor": 8, "pipeline": 16, "schedule": schedule})
        times[schedule] = simulate(setting, plan).period
    assert times["zb-2p"] < times["zb-1p"] < times["1f1b"]


@pytest.mark.parametrize("name", list(schedules))
def test_every_schedule_runs_a_real_plan(name):
    """The same work on the same devices: between no bubble at all and GPipe's.

    The model is wide enough for copies to the host to keep up (Wan et al. 2025, section 3.1) where no two
    devices share a PCIe switch.
    """
    wide = ("gpt-39.1b", root_a_device(), 16, 4096, 32)
    chunks = next(v for v in (1, 2, 4) if schedules[name].requires(4, 16, v))
    plan = {"tensor": 2, "pipeline": 4, "virtual_pipeline": chunks, "schedule": name}
    setting, made = scenario(*wide, plan)
    timeline = simulate(setting, made)
    busy = max(timeline.busy(rank) for rank in range(4))
    _, gpipe = scenario(*wide, {**plan, "virtual_pipeline": 1, "schedule": "gpipe"})
    assert busy <= timeline.period <= 1.05 * simulate(setting, gpipe).period
    assert all(timeline.peak_memory(rank) > 0 for rank in range(4))


def test_two_replicas_of_a_bidirectional_pipeline_cost_memory():
    plan = {"tensor": 2, "pipeline": 4, "virtual_pipeline": 2, "schedule": "chimera"}
    setting, chimera = scenario("opt-6.7b", "dgx-a100-80gb", 16, 2048, 32, plan)
    _, single = scenario(
        "opt-6.7b", "dgx-a100-80gb", 16, 2048, 32, {**plan, "schedule": "1f1b", "virtual_pipeline": 1}
    )
    both, one = step_program(setting, chimera), step_program(setting, single)
    state = sum(one.static) - 4 * setting.framework.memory.context_bytes
    assert sum(both.static) - sum(one.static) > 0.6 * state


def test_activations_on_the_host_leave_the_device():
    plan = {"tensor": 2, "pipeline": 4, "virtual_pipeline": 4}
    kept, peaks = {}, {}
    for name in ("interleaved", "pipeoffload"):
        setting, made = scenario("opt-6.7b", "dgx-a100-80gb", 16, 2048, 64, {**plan, "schedule": name})
        kept[name] = simulate(setting, made)
        peaks[name] = kept[name].peak_memory(0) - step_program(setting, made).static[0]
    assert peaks["pipeoffload"] < 0.7 * peaks["interleaved"]
    assert kept["pipeoffload"].traffic["host"] > 0


def test_a_model_too_narrow_for_the_host_link_waits_for_its_copies():
    """Copies grow with hidden x sequence, work with hidden squared x sequence: k > 1 in Wan et al., 3.1."""
    plan = {"tensor": 2, "pipeline": 4, "virtual_pipeline": 2}
    slower = []
    for model in ("gpt-1.7b", "gpt-39.1b"):
        periods = []
        for name in ("interleaved", "pipeoffload-full"):
            setting, made = scenario(model, root_a_device(), 8, 2048, 64, {**plan, "schedule": name})
            timeline = simulate(setting, made)
            periods.append(timeline.period)
        stated = get_schedule("pipeoffload-full").in_flight(4, 64, 2, 0)
        held = timeline.peak_memory(0) - timeline.static[0]
        one = step_program(setting, made).work[1].activation * 2
        assert held <= float(stated) * one * 1.01
        slower.append(periods[1] / periods[0])
    assert slower[0] > 1.2 > 1.05 > slower[1]


def test_zero_bubble_ranks_do_not_wait_for_each_other_at_the_end():
    setting, plan = scenario(*GPT3, {"tensor": 8, "pipeline": 16, "schedule": "zb-h2", "micro_batch": 1})
    program = step_program(setting, plan)
    free, bound = run(program), run(replace(program, synchronous=True))
    assert not program.synchronous
    assert free.period < bound.period


WIDE_VOCABULARY = {
    "name": "wide vocabulary",
    "layers": 32,
    "hidden": 3072,
    "heads": 24,
    "kv_heads": 24,
    "feed_forward": 12288,
    "vocabulary": 256000,
    "max_sequence": 2048,
    "activation": "gelu",
    "norm": "layernorm",
    "position": "learned",
    "tied_embeddings": False,
    "bias": True,
}


@pytest.mark.parametrize(("name", "early"), [("vocab-1f1b", 6), ("vocab-1f1b-2", 0)])
def test_ranks_that_do_not_wait_for_sums_scale_their_softmax_again(name, early):
    """In 32 bits: 8 bytes a logit, and a cast of 6 where the product of the gradient comes first."""
    setting, plan = scenario(WIDE_VOCABULARY, "dgx-a100-80gb", 8, 2048, 64, {"pipeline": 8})
    waiting, going_on = (output_work(setting, plan, schedules[each], 1) for each in ("interlaced", name))

    def seconds(work):
        return sum(part.seconds for part in (*work.forward, *work.weight))

    hidden = 14 * 2048 * 3072
    read = ((8 + early) * 2048 * 256000 / 8 + hidden) / setting.cluster.device.memory_bandwidth
    assert read < seconds(going_on) - seconds(waiting) < 1.5 * read
    assert going_on.broadcast.seconds > 1.5 * waiting.broadcast.seconds


def test_a_vocabulary_split_over_the_pipeline_shortens_the_step():
    """With a large vocabulary the last stage of 1F1B is the slowest (Yeung et al. 2025)."""
    case = (WIDE_VOCABULARY, "dgx-a100-80gb", 8, 2048, 64)
    seconds, peaks = {}, {}
    for schedule in ("1f1b", "vocab-1f1b", "vocab-1f1b-2"):
        timeline = simulate(*scenario(*case, {"pipeline": 8, "schedule": schedule}))
        seconds[schedule] = timeline.period
        peaks[schedule] = max(timeline.peak_memory(rank) for rank in range(8))
    assert seconds["vocab-1f1b"] < 0.7 * seconds["1f1b"]
    assert seconds["vocab-1f1b-2"] == pytest.approx(seconds["vocab-1f1b"], rel=0.05)
    assert peaks["vocab-1f1b"] < peaks["1f1b"]


def test_a_slow_device_in_one_replica_slows_the_step_but_not_more_than_its_own_work():
    setting, plan = scenario(*GPT3, {"tensor": 8, "pipeline": 16})
    program = step_program(setting, plan)
    slow = (1.0,) * 7 + (1.1,) + (1.0,) * 8
    mixed = replace(program, replicas=(Replicas(plan.data - 1), Replicas(1, slow)))
    alone = replace(program, replicas=(Replicas(1, slow),))
    assert run(program).period < run(mixed).period == pytest.approx(run(alone).period, rel=1e-9)
    assert run(mixed).period < 1.1 * run(program).period


def test_segments_of_all_streams_fill_the_step():
    setting, plan = scenario(*CASES["DDP"])
    program = replace(step_program(setting, plan), detail=True)
    timeline = run(program)
    assert timeline.period == pytest.approx(simulate(setting, plan).period, rel=1e-3)
    for stream in (COMPUTE, TENSOR, DATA):
        assert timeline.busy(0, stream) > 0
    names = {interval.name.split()[-1] for interval in timeline.intervals(0, COMPUTE)}
    assert {"gemm", "attention", "elementwise"} <= names


def test_a_batch_that_the_schedule_cannot_run_is_refused():
    with pytest.raises(InputError, match="multiples of the stages"):
        setting, plan = scenario(
            "gpt3-175b", "dgx-a100-80gb", 512, 2048, 72, {"tensor": 8, "pipeline": 8, "virtual_pipeline": 4}
        )
        simulate(setting, plan)


class OneAfterTheOther(DualPipe):
    overlaps_passes = False


@pytest.mark.parametrize("detail", [False, True])
def test_dualpipe_hides_the_experts_exchange_behind_the_other_direction(detail):
    plan = {"pipeline": 4, "virtual_pipeline": 2, "expert": 8, "schedule": "dualpipe"}
    setting, made = scenario("mixtral-8x7b", "dgx-h100", 32, 4096, 256, plan)
    program = replace(step_program(setting, made), detail=detail)
    both, apart = run(program), run(replace(program, schedule=OneAfterTheOther()))
    assert both.period < apart.period
    slowed = sum(both.busy(rank) for rank in range(4)) / sum(apart.busy(rank) for rank in range(4))
    assert slowed < program.contention.compute
    if detail:
        assert account(both, 1)["expert"] < 0.8 * account(apart, 1)["expert"]
