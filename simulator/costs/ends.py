"""The two ends of the model: input embedding on the first stage, output layer and loss on the last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs.layer import Pass
from simulator.costs.linear import Linears
from simulator.costs.setting import Setting
from simulator.costs.tensor import gather_sequence, reduce_partial
from simulator.costs.work import Transfer, Work
from simulator.ops import elementwise as passes
from simulator.plan import Plans

END_FIELDS = ("tensor", "context", "micro_batch", "sequence_parallel")
"""The plan fields that the ends' cost depends on."""


@dataclass
class End:
    """Forward and backward pass of one end for one micro batch on one device."""

    forward: Pass
    backward_input: Pass
    backward_weight: Pass


def padded_vocabulary(setting: Setting, tensor: np.ndarray) -> np.ndarray:
    """Rows of the embedding, padded to a multiple of 128 on each tensor-parallel rank (Megatron-LM)."""
    unit = 128 * np.asarray(tensor)
    return np.ceil(setting.model.vocabulary / unit) * unit


def _end(
    setting: Setting, plans: Plans, works: tuple[Work, Work, Work], tensor: tuple[Transfer, Transfer]
) -> End:
    none = Transfer(np.zeros(len(plans)), np.zeros(len(plans)))
    forward, backward_input, backward_weight = works
    return End(
        Pass(forward, tensor[0], none, none, setting),
        Pass(backward_input, tensor[1], none, none, setting),
        Pass(backward_weight, none, none, none, setting),
    )


def embedding(setting: Setting, plans: Plans) -> End:
    """Look a row up for each token; backward adds rows into a dense gradient.

    Torch clears a gradient of the table's size for every micro batch (embedding_dense_backward), and where
    gradients accumulate in a buffer of their own, the whole of it is added to that (Megatron Core,
    distributed_data_parallel.py: main_grad.add_).
    """
    model, kernels = setting.model, setting.kernels
    tokens = setting.tokens(plans)
    size = tokens * model.hidden * setting.width
    forward, backward = Work(), Work()
    sources = 2 if model.position == "learned" else 1
    forward.add_bytes(kernels, "embedding", (sources + 1) * size, 1 + sources)
    backward.add_bytes(kernels, "embedding", 3 * size, 2)
    added = (
        setting.width + 2 * setting.framework.gradient_bytes if setting.framework.adds_first_gradient else 0
    )
    table = padded_vocabulary(setting, plans.tensor) / plans.tensor * model.hidden
    cleared = table * (setting.width + added)
    backward.add_bytes(kernels, "embedding", cleared, 2 if added else 1, "elementwise")
    if setting.dropout:
        forward.add_bytes(kernels, "elementwise", passes.DROPOUT * size)
        backward.add_bytes(kernels, "elementwise", passes.DROPOUT * size)
    first, second = reduce_partial(setting, plans, size), gather_sequence(setting, plans, size)
    return _end(
        setting, plans, (forward, backward, Work()), (Transfer(first, first), Transfer(second, second))
    )


def head(setting: Setting, plans: Plans) -> End:
    """Final norm, output layer and loss over the vocabulary shard of one rank, for each prediction."""
    model, kernels, framework = setting.model, setting.kernels, setting.framework
    tokens = setting.tokens(plans)
    rows = padded_vocabulary(setting, plans.tensor) / plans.tensor
    linears = Linears(setting, tokens)
    linears.add("column", rows, model.hidden, setting.core_dtype, bias=False)
    forward, backward = linears.forward, linears.backward_input
    logits = tokens * rows * 2
    casts = framework.cross_entropy == "torch" and setting.width == 2
    for loss in (passes.CROSS_ENTROPY[framework.cross_entropy], *([passes.CAST_LOGITS] if casts else [])):
        forward.add_bytes(kernels, "cross_entropy", loss.forward * logits, loss.forward_launches)
        backward.add_bytes(kernels, "cross_entropy", loss.backward * logits, loss.backward_launches)
    size = tokens * model.hidden * setting.width
    norm, variant = passes.NORM, passes.VARIANTS[model.norm]
    forward.add_bytes(kernels, "norm", norm.forward * size, norm.forward_launches, variant)
    backward.add_bytes(kernels, "norm", norm.backward * size, norm.backward_launches, variant)
    works, times = (forward, backward, linears.backward_weight), 1 + setting.mtp_layers
    if setting.mtp_layers:
        works = _predict_further(setting, plans, works)
    gather = gather_sequence(setting, plans, size)
    # Maximum, sum of exponentials and the target's logit are each reduced over the vocabulary shards.
    statistics = 3 * setting.cluster.collective("all_reduce", 4 * tokens, plans.tensor, 1)
    first = times * (gather + statistics)
    second = times * (reduce_partial(setting, plans, size) + gather)
    return _end(setting, plans, works, (Transfer(first, first), Transfer(second, second)))


def _predict_further(
    setting: Setting, plans: Plans, once: tuple[Work, Work, Work]
) -> tuple[Work, Work, Work]:
    """Output layers of multi-token prediction beside the model's own.

    Each comes with the projection of hidden state and next embedding to one width (DeepSeek-V3, section 2.2).
    """
    hidden = setting.model.hidden
    tokens = setting.tokens(plans)
    projection = Linears(setting, tokens)
    projection.add("column", hidden / plans.tensor, 2 * hidden, bias=False)
    joined = (projection.forward, projection.backward_input, projection.backward_weight)
    works = Work(), Work(), Work()
    for work, each, project in zip(works, once, joined, strict=True):
        work.extend(each, 1.0 + setting.mtp_layers)
        work.extend(project, 1.0 * setting.mtp_layers)
    return works
