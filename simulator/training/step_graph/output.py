"""A vocabulary-parallel output layer: the cost of each pipeline rank's share."""

from __future__ import annotations

from dataclasses import replace

from hwmodels.collectives.cost import Cost
from simulator.ops.ends import padded_vocabulary
from simulator.plan import Plan, Plans
from simulator.schedules.base import OUTPUT_FORWARD, OUTPUT_WEIGHT, Schedule
from simulator.setting import Setting
from simulator.training.ends import corrected_share, head
from simulator.training.overlap import Transfer
from simulator.training.step_graph.loads import communication, scalar
from simulator.training.step_graph.passes import StagePasses
from simulator.training.step_graph.step import OutputWork
from simulator.training.step_graph.streams import NAMES, OUTPUT, OUTPUT_LAYER


def output_work(setting: Setting, plan: Plan, schedule: Schedule, stride: int) -> OutputWork:
    """Every rank's share of the output layer: its vocabulary is split over the pipeline ranks too.

    With one barrier the input gradient's product comes before it, with two after (Yeung et al. 2025,
    section 4); either way the partial input gradients are summed over the ranks. Where ranks do not wait for
    the sums, they correct their softmax later, and hidden states arrive in 32 bits beside the gradient of
    the loss of the micro batch before (github.com/sail-sg/VocabularyParallelism, VocabParallelOutput and
    forward_backward_pipelining_with_vocab_parallel).

    Args:
        setting: what plans share.
        plan: the plan.
        schedule: one that splits the output layer.
        stride: devices between neighbouring pipeline ranks.
    """
    barriers = schedule.output_barriers
    shared = Plans.of(plan.model_copy(update={"tensor": plan.tensor * plan.pipeline}))
    share = head(setting, shared)
    if barriers == 1:
        before, after = [share.forward, share.backward_input], [share.backward_weight]
    else:
        before, after = [share.forward], [share.backward_input, share.backward_weight]
    if not schedule.waits_for_output:
        corrected = corrected_share(setting, shared, early=barriers == 1)
        before, after = [*before, corrected.forward], [corrected.backward_input, *after]
    passes = []
    for kind, works in ((OUTPUT_FORWARD, before), (OUTPUT_WEIGHT, after)):
        passes_of = StagePasses(NAMES[kind], setting.cluster)
        for costs in works:
            alone = replace(costs, tensor=Transfer(Cost.none((1,))))
            passes_of.add("output layer", alone, part=OUTPUT_LAYER)
        passes.append(passes_of.done())
    tokens = scalar(setting.tokens(Plans.of(plan)))
    hidden = tokens * setting.model.hidden * setting.width / plan.tensor

    cluster = setting.cluster
    sent = hidden if schedule.waits_for_output else hidden * 4 / setting.width
    broadcast = cluster.collective_cost("broadcast", sent, plan.pipeline, stride)
    # Maximum, sum of exponentials and the target's logit of each token, and the input gradient.
    sizes = 4 * tokens, 4 * tokens, 4 * tokens, hidden
    sums = [cluster.collective_cost("all_reduce", size, plan.pipeline, stride) for size in sizes]
    barrier = sum(sums, Cost.none()) * (1 / barriers)
    logits = (
        2 * tokens * scalar(padded_vocabulary(setting.model, shared.tensor)) / (plan.tensor * plan.pipeline)
    )
    return OutputWork(
        forward=passes[0],
        weight=passes[1],
        broadcast=communication(cluster, "broadcast", broadcast, OUTPUT),
        barrier=communication(cluster, "softmax barrier", barrier, OUTPUT),
        memory=logits,
    )
