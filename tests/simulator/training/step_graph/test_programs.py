"""Step programs: what the engine makes of schedules, data parallelism, memory and unequal ranks."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.from_times import from_times
from hwmodels.cluster import clusters
from simulator.engine import Contention
from simulator.schedules import PipelineTimes, WorkTimes, schedules
from simulator.schedules.walk import walk
from simulator.training.step_graph import (
    Attached,
    ChunkWork,
    OutputWork,
    Replicas,
    StepProgram,
    StreamWork,
    run,
)
from simulator.training.step_graph.expand import expand
from simulator.training.step_graph.ports import ports
from simulator.training.step_graph.step import NO_LOAD, LinkDemand, Port
from simulator.training.step_graph.streams import COMPUTE, DATA, OUTPUT, PIPELINE, TENSOR

CHUNKS = {
    "interleaved": 3,
    "breadth-first": 2,
    "hanayo": 2,
    "chimera": 2,
    "bitpipe": 4,
    "dualpipe": 2,
    "zb-v": 2,
    "zeropp": 2,
    "pipeoffload": 2,
    "pipeoffload-full": 2,
    "v-half": 2,
    "vocab-v-half": 2,
}
SEND = StreamWork("send", 0.0, PIPELINE)


def times(p=4, m=8, v=1, transfer=0.0, overlap=True):
    return PipelineTimes.of_equal(p, m, v, (1.1, 1.0, 1.2), (2.0, 1.9, 2.4), transfer, overlap)


def layers(count, forward=1.0, backward=2.0, **more):
    """A model of one rank: ``count`` layers, each a segment."""
    work = ChunkWork(
        forward=tuple(StreamWork(f"layer {i}", forward) for i in range(count)),
        backward=tuple(StreamWork(f"layer {i}", backward) for i in reversed(range(count))),
        **more,
    )
    return StepProgram(schedules["1f1b"], 1, 1, 1, (work,), SEND)


@pytest.mark.parametrize("name", [name for name, each in schedules.items() if not each.output_barriers])
def test_engine_agrees_with_the_walk_of_the_same_orders(name):
    """Two ways of timing one order: events on a task graph, and ranks stepping through their lists."""
    schedule, v = schedules[name], CHUNKS.get(name, 1)
    program = from_times(schedule, times(4, 12, v, transfer=0.05), weight_share=0.45)
    seconds = WorkTimes(
        [sum(each.seconds for each in work.forward) for work in program.work],
        [sum(each.seconds for each in work.backward) for work in program.work],
        [sum(each.seconds for each in work.weight) for work in program.work],
        hop=0.05,
    )
    expected = walk(schedule, 4, 12, v, schedule.orders(4, 12, v, seconds), seconds)
    timeline = run(program)
    assert timeline.seconds == pytest.approx(expected.seconds, rel=1e-12)
    assert timeline.period <= timeline.seconds


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "breadth-first"])
@pytest.mark.parametrize("overlap", [True, False])
def test_engine_agrees_with_closed_forms(name, overlap):
    for p, m in ((2, 8), (4, 8), (8, 64)):
        each = times(p, m, CHUNKS.get(name, 1), transfer=0.03, overlap=overlap)
        found = run(from_times(schedules[name], each)).seconds
        assert schedules[name].makespan(each) == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize("name", list(schedules))
def test_work_is_conserved_and_stated_memory_held(name):
    schedule, v, p, m = schedules[name], CHUNKS.get(name, 1), 4, 8
    program = from_times(schedule, times(p, m, v), offload_seconds=0.1)
    if schedule.output_barriers:
        program = replace(
            program, output=OutputWork((StreamWork("s", 0.1),), (StreamWork("t", 0.2),), SEND, SEND)
        )
    timeline = run(program)
    total = sum(timeline.busy(rank) for rank in range(p))
    micro_batch = sum(
        s.seconds
        for work in program.work
        for each in (work.forward, work.backward, work.weight)
        for s in each
    )
    extra = p * m * 0.3 if schedule.output_barriers else 0.0
    assert total == pytest.approx(m * micro_batch + extra)
    for rank in range(p):
        assert timeline.peak_memory(rank) <= float(schedule.in_flight(p, m, v, rank)) + 1e-9
        held = timeline.memory(rank)[1]
        assert held[0] == 0 and held[-1] == pytest.approx(0, abs=1e-9) and held.min() >= -1e-9


def test_intervals_of_a_stream_do_not_overlap():
    timeline = run(from_times(schedules["interleaved"], times(4, 8, 3, transfer=0.2)))
    for rank in range(4):
        for stream in (COMPUTE, PIPELINE):
            intervals = timeline.intervals(rank, stream)
            assert all(b.start >= a.end - 1e-12 for a, b in pairwise(intervals))


def test_what_is_given_back_at_an_instant_counts_before_what_is_taken():
    """On the last rank of 1F1B a forward starts the moment a backward ends: one activation, not two."""
    timeline = run(from_times(schedules["1f1b"], times(4, 8)))
    assert timeline.peak_memory(3) == 1.0


# ---- data parallelism ------------------------------------------------------------------------------


def with_gathers(count, prefetch, gather=0.4):
    gathers = tuple(
        Attached(i, StreamWork("gather", gather, DATA, load=LinkDemand(sent=(("network", 8.0),))))
        for i in range(count)
    )
    program = layers(count, forward_gathers=gathers, backward_gathers=gathers)
    return replace(program, gather="pass", prefetch=prefetch)


def held_at_once(timeline, uses=1):
    """Gathers of rank 0 that have begun and are still to be used, at most; each serves so many tasks."""
    last = [each.end for each in timeline.intervals(0, COMPUTE)][uses - 1 :: uses]
    return max(
        sum(end > gather.start + 1e-12 for end in last[: number + 1])
        for number, gather in enumerate(timeline.intervals(0, DATA))
    )


@pytest.mark.parametrize(("prefetch", "held"), [(0, 1), (1, 2), (2, 3)])
def test_gathers_run_ahead_as_far_as_prefetching_allows(prefetch, held):
    timeline = run(with_gathers(5, prefetch))
    exposed = 10 * 0.4 if prefetch == 0 else 0.4
    assert timeline.seconds == pytest.approx(15 + exposed)
    assert held_at_once(timeline) == held
    assert timeline.traffic == {"network": pytest.approx(80.0)}


def test_gathers_slower_than_computation_set_the_pace():
    timeline = run(with_gathers(5, prefetch=1, gather=3.0))
    # Five forwards of 1 s and five backwards of 2 s, both shorter than a gather.
    assert timeline.seconds == pytest.approx(10 * 3.0 + 2.0)


def test_buckets_reduce_while_the_backward_runs():
    buckets = tuple(Attached(i, StreamWork("reduce", 1.5, DATA)) for i in (1, 3))
    timeline = run(layers(4, reductions=buckets))
    reductions = timeline.intervals(0, DATA)
    assert [each.start for each in reductions] == [4 + 2 * 2, 4 + 4 * 2]
    assert timeline.seconds == pytest.approx(4 + 8 + 1.5)


def test_gradients_are_reduced_once_a_step_or_every_pass():
    buckets = (Attached(0, StreamWork("reduce", 0.1, DATA)),)
    once = replace(layers(1, reductions=buckets), micro_batches=4)
    assert len(run(once).intervals(0, DATA)) == 1
    assert len(run(replace(once, reduce="pass")).intervals(0, DATA)) == 4


def test_a_backward_ends_with_waiting_for_what_it_reduces():
    """Autograd's last callback does (FSDP, DeepSpeed); the next micro batch's forward hides nothing of it."""
    buckets = (Attached(0, StreamWork("reduce", 5.0, DATA)),)
    program = replace(layers(1, reductions=buckets), micro_batches=2, reduce="pass")
    # A forward of 1 s, a backward of 2 s and the reduction, twice.
    assert run(program).seconds == pytest.approx(2 * (1 + 2 + 5))


@pytest.mark.parametrize(("overlaps", "exposed"), [(True, 0.5), (False, 4 * 0.5)])
def test_computation_waits_for_reductions_only_where_they_do_not_overlap(overlaps, exposed):
    buckets = tuple(Attached(i, StreamWork("reduce", 0.5, DATA)) for i in range(4))
    timeline = run(replace(layers(4, reductions=buckets), reduce="pass", overlap_gradients=overlaps))
    assert timeline.seconds == pytest.approx(4 + 8 + exposed)


def test_a_gather_that_kernels_wait_for_goes_before_reductions():
    program = with_gathers(4, prefetch=0)
    buckets = tuple(Attached(i, StreamWork("reduce", 1.5, DATA)) for i in range(4))
    work = tuple(replace(each, reductions=buckets) for each in program.work)
    timeline = run(replace(program, work=work, reduce="pass"))
    # A reduction hides behind the 2 s of the next layer's backward; the last one does not.
    assert timeline.seconds == pytest.approx(4 + 8 + 8 * 0.4 + 1.5)


def test_breadth_first_gathers_a_chunk_once_for_all_its_micro_batches():
    gather = (Attached(0, StreamWork("gather", 0.1, DATA)),)
    program = from_times(schedules["breadth-first"], times(2, 6, 3))
    work = tuple(replace(each, forward_gathers=gather, backward_gathers=gather) for each in program.work)
    together = run(replace(program, work=work, gather="pass", unit=6))
    alone = run(replace(program, work=work, gather="pass"))
    # Three chunks, forward and backward; one in use and one ahead.
    assert len(together.intervals(0, DATA)) == 6
    assert held_at_once(together, uses=6) == 2
    assert len(alone.intervals(0, DATA)) == 6 * 6


def test_the_optimizer_waits_for_all_ranks_only_where_they_synchronise():
    program = from_times(schedules["zb-h2"], times(4, 16))
    program = replace(program, finish=((StreamWork("optimizer", 1.0),),) * 4)
    together, alone = run(program), run(replace(program, synchronous=False))
    begins = [together.intervals(rank, COMPUTE)[-1].start for rank in range(4)]
    assert len(set(begins)) == 1
    assert len({alone.intervals(rank, COMPUTE)[-1].start for rank in range(4)}) > 1
    assert alone.period < together.period


# ---- overlap inside a pass -------------------------------------------------------------------------


def test_an_exposed_collective_adds_its_time_and_an_overlapped_one_does_not():
    exposed = (StreamWork("gemm", 1.0), StreamWork("gather", 0.5, TENSOR), StreamWork("gemm", 1.0))
    beside = (
        StreamWork("gemm", 1.0),
        StreamWork("gather", 0.5, TENSOR, after=(0,)),
        StreamWork("gemm", 1.0, after=(0,)),
    )
    for work, expected in ((exposed, 2.5), (beside, 2.0)):
        for detail in (False, True):
            program = replace(
                layers(1), work=(ChunkWork(work, (StreamWork("backward", 1.0),)),), detail=detail
            )
            assert run(program).seconds == pytest.approx(expected + 1.0)


def test_passes_run_whole_or_in_segments_take_the_same_time():
    work = ChunkWork(
        forward=(
            StreamWork("gemm", 1.0),
            StreamWork("gather", 0.5, TENSOR, after=(0,)),
            StreamWork("gemm", 1.0, after=(0,)),
        ),
        backward=(StreamWork("gemm", 2.0), StreamWork("scatter", 0.4, TENSOR), StreamWork("gemm", 0.3)),
    )
    program = replace(
        from_times(schedules["1f1b"], times(4, 8)), work=(work,) * 4, contention=Contention(1.1, 1.3)
    )
    whole, pieces = run(program), run(replace(program, detail=True))
    assert pieces.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert len(pieces.graph) > len(whole.graph)


# ---- classes of ranks ------------------------------------------------------------------------------


def test_cost_and_result_do_not_depend_on_how_many_equal_replicas_there_are():
    program = from_times(schedules["1f1b"], times())
    few, many = (run(replace(program, replicas=(Replicas(count),))) for count in (8, 100_000))
    assert len(few.graph) == len(many.graph)
    assert few.ends.tobytes() == many.ends.tobytes()


def test_a_slow_replica_holds_up_the_reduction_of_all():
    bucket = (Attached(0, StreamWork("reduce", 0.5, DATA)),)
    program = from_times(schedules["1f1b"], times(2, 4))
    program = replace(program, work=tuple(replace(each, reductions=bucket) for each in program.work))
    alike = run(program)
    slow = run(replace(program, replicas=(Replicas(7), Replicas(1, (1.0, 1.5)))))
    assert slow.ranks == 4
    assert slow.seconds > 1.3 * alike.seconds
    healthy, straggler = (slow.intervals(rank, DATA)[0].start for rank in (1, 3))
    assert healthy == straggler > alike.intervals(1, DATA)[0].start


def test_tasks_grow_with_stages_times_micro_batches():
    sizes = {
        (p, m): len(expand(from_times(schedules["1f1b"], times(p, m))))
        for p, m in ((4, 50), (4, 100), (8, 100))
    }
    assert sizes[4, 100] / sizes[4, 50] == pytest.approx(2, rel=0.05)
    assert sizes[8, 100] / sizes[4, 100] == pytest.approx(2, rel=0.2)


# ---- network and output layer ----------------------------------------------------------------------


def test_transfers_that_share_a_link_take_longer():
    program = from_times(schedules["gpipe"], times(4, 8))
    wire = StreamWork("send", 0.5, PIPELINE, load=LinkDemand("network", 1.0))
    alone = run(replace(program, transfer=wire))
    fixed = run(replace(program, transfer=replace(wire, load=NO_LOAD)))
    # GPipe sends one way at a time, and each rank has links of its own: nothing meets.
    assert alone.ends.tobytes() == fixed.ends.tobytes()
    thin = run(replace(program, transfer=wire, replicas=(Replicas(1, (), (1.0, 0.5, 1.0, 1.0)),)))
    spans = [each.end - each.start for each in thin.intervals(1, PIPELINE)]
    assert min(spans) == pytest.approx(1.0)
    assert thin.seconds > alone.seconds


def test_a_send_beside_a_reduction_on_one_link_stretches_both_and_loses_no_bytes():
    """Rank 1 reduces its last gradients while it sends the gradient of its input to rank 0."""
    program = from_times(schedules["1f1b"], times(2, 4))
    bucket = Attached(0, StreamWork("reduce", 0.5, DATA, load=LinkDemand("network", 1.0)))
    wire = StreamWork("send", 0.5, PIPELINE, load=LinkDemand("network", 1.0))
    program = replace(
        program,
        transfer=wire,
        work=tuple(replace(each, reductions=(bucket,)) for each in program.work),
    )
    met = run(program)
    apart = run(replace(program, transfer=replace(wire, load=LinkDemand("nvlink", 1.0))))

    def last(timeline, rank, stream):
        span = timeline.intervals(rank, stream)[-1]
        return span.end - span.start

    assert last(apart, 1, PIPELINE) == last(apart, 1, DATA) == pytest.approx(0.5)
    assert last(met, 1, PIPELINE) == pytest.approx(1.0)
    assert last(met, 1, DATA) == pytest.approx(1.0)
    assert last(met, 0, DATA) == pytest.approx(0.5)


def test_a_thin_link_of_one_replica_holds_up_the_step_of_all():
    bucket = Attached(0, StreamWork("reduce", 0.5, DATA, load=LinkDemand("network", 1.0)))
    program = from_times(schedules["1f1b"], times(2, 4))
    program = replace(program, work=tuple(replace(each, reductions=(bucket,)) for each in program.work))
    work = (StreamWork("optimizer", 0.1),)
    program = replace(program, finish=(work, work))
    thin = replace(program, replicas=(Replicas(7), Replicas(1, (), (0.25, 1.0))))
    assert run(thin).seconds == pytest.approx(run(program).seconds + 0.5 / 0.25 - 0.5)


@pytest.mark.parametrize(("share", "seconds"), [(50.0, 1.0), (100.0, 2.0)])
def test_stages_behind_one_nic_contend_for_it(share, seconds):
    """Two stages reduce at once; each asks for half of the NIC, or for all of it."""
    reduce = StreamWork("reduce", 1.0, DATA, load=LinkDemand("network", 1.0))
    program = replace(from_times(schedules["1f1b"], times(2, 4)), finish=((reduce,), (reduce,)))
    program = replace(program, ports={"network": (Port("nic", 100.0, share),) * 2})
    spans = [each.end - each.start for rank in range(2) for each in run(program).intervals(rank, DATA)]
    assert spans == pytest.approx([seconds] * 2)


def test_a_stage_may_use_what_its_neighbour_leaves_of_their_nic():
    """Rank 1 reduces while it sends; rank 0 behind the same NIC is idle."""
    bucket = Attached(0, StreamWork("reduce", 0.5, DATA, load=LinkDemand("network", 1.0)))
    program = replace(
        from_times(schedules["1f1b"], times(2, 4)),
        transfer=StreamWork("send", 0.5, PIPELINE, load=LinkDemand("network", 1.0)),
    )
    work = tuple(replace(each, reductions=(bucket,)) for each in program.work)
    shared = {"network": (Port("nic", 100.0, 50.0),) * 2}
    own = {"network": (Port(0, 50.0, 50.0), Port(1, 50.0, 50.0))}
    ended = [run(replace(program, work=work, ports=ports)).seconds for ports in (shared, own)]
    assert ended[0] < ended[1]


def test_ports_are_the_links_of_the_topology():
    frontier = clusters.get("frontier").resized(64)
    network = ports(frontier, stages=8, stride=1)["network"]
    # A NIC of 25 GB/s for two GCDs, each a stage.
    assert network[0] == network[1] == Port(network[0].link, 25e9, 12.5e9)
    assert len({port.link for port in network}) == 4
    whole = ports(frontier, stages=8, stride=8)["network"]
    assert {port.share for port in whole} == {25e9}
    assert len({port.link for port in whole}) == 8


@pytest.mark.parametrize(("name", "barriers"), [("vocab-1f1b", 1), ("vocab-1f1b-2", 2)])
def test_the_last_backward_waits_for_every_rank_share_of_the_output_layer(name, barriers):
    output = OutputWork(
        (StreamWork("s", 0.2),),
        (StreamWork("t", 0.3),),
        StreamWork("broadcast", 0.05, OUTPUT),
        StreamWork("sum", 0.01, OUTPUT),
    )
    timeline = run(replace(from_times(schedules[name], times(4, 12)), output=output))
    spans = [
        {(each.name, each.number): each for each in timeline.intervals(rank, COMPUTE)} for rank in range(4)
    ]
    needed = "output forward" if barriers == 1 else "output weight gradient"
    for i in range(12):
        ready = max(span[needed, i].end for span in spans) + 0.01
        assert spans[3]["backward", i].start >= ready - 1e-9
        hidden = spans[3]["forward", i].end + 0.05
        assert min(span["output forward", i].start for span in spans) >= hidden - 1e-9


def test_interlaced_ranks_stop_together_for_the_output_layer():
    """No rank passes on to other work between its share and the reductions (Yeung et al. 2025, section 2)."""
    output = OutputWork(
        (StreamWork("s", 0.2),), (StreamWork("t", 0.3),), SEND, StreamWork("sum", 0.1, OUTPUT)
    )
    ended = {}
    for name in ("interlaced", "vocab-1f1b-2"):
        timeline = run(replace(from_times(schedules[name], times(4, 12)), output=output))
        ended[name] = timeline.seconds
        for rank in range(4):
            spans = timeline.intervals(rank, COMPUTE)
            shares = [i for i, each in enumerate(spans) if each.name == "output forward"]
            together = [spans[i + 1].name == "output weight gradient" for i in shares]
            assert all(together) == (name == "interlaced")
            if name == "interlaced":
                assert all(spans[i + 1].start >= spans[i].end + 0.1 - 1e-9 for i in shares)
    assert ended["interlaced"] != ended["vocab-1f1b-2"]


def test_splitting_the_output_layer_beats_leaving_it_on_the_last_rank():
    """A vocabulary whose output layer costs as much as a stage (Yeung et al., figure 1)."""
    heavy = PipelineTimes.of_equal(4, 32, 1, (1, 1, 2), (2, 2, 4), 0, True)
    even = PipelineTimes.of_equal(4, 32, 1, (1, 1, 1), (2, 2, 2), 0, True)
    share = OutputWork((StreamWork("s", 0.5),), (StreamWork("t", 0.25),), SEND, SEND)
    baseline = run(from_times(schedules["1f1b"], heavy)).seconds
    split = run(replace(from_times(schedules["vocab-1f1b"], even), output=share)).seconds
    assert split < 0.75 * baseline


def test_one_run_is_like_another():
    program = replace(
        from_times(schedules["zb-v"], times(4, 12, 2, transfer=0.1)), contention=Contention(1.1, 1.2)
    )
    first, second = run(program), run(program)
    assert first.ends.tobytes() == second.ends.tobytes()
    assert np.array_equal(first.memory(2)[1], second.memory(2)[1])
