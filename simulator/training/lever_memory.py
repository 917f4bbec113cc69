"""Memory that CUDA graphs and a second micro batch take beside what a pass keeps.

Graphs replay kernels on addresses of their own: a pool that other kernels do not share. Tensors that are kept
for the backward pass lie in one pool or the other, but what a graphed pass allocates meanwhile, at most a
gradient of each tensor that one layer keeps, lies beside that of other kernels. Copies of inputs and outputs
replace what eager kernels keep; those of finished micro batches are used again (Megatron Core,
cuda_graphs.py: _get_sample_arguments).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from simulator.layout.model_ops import ModelOps
from simulator.layout.stages import Stages
from simulator.models import LayerKind
from simulator.ops import Op
from simulator.plan import FULL, Plans
from simulator.setting import Setting
from simulator.training.activations import Kept
from simulator.training.counts import micro_batches
from simulator.training.layer import in_graph

STEP_GRAPHS = 10 / 143
"""What graphs of whole passes add to the memory of a step: Llama 3.1 70B under torchtitan takes 153 GiB for
143 (pull request 2050, the smallest of three measured pools). Megatron Bridge's documentation says that they
take more than all other graphs, and gives no figure."""


def captured(graphs: str, kind: LayerKind, listed: Iterable[Op]) -> np.ndarray | float:
    """Bytes of one layer's tensors whose kernels graphs of parts replay, shape (plans,) or a number."""
    if graphs in ("none", "step"):
        return 0.0
    return sum((op.saved for op in listed if in_graph(graphs, kind.experts, op)), 0.0)


def largest(layers: np.ndarray, sizes: Sequence[np.ndarray]) -> np.ndarray:
    """Bytes of the largest layer on each class of stage, shape (classes, plans).

    Args:
        layers: layers of each kind, shape (classes, kinds, plans).
        sizes: bytes of one layer of each kind, shape (plans,).
    """
    sizes_on_stage = np.zeros((layers.shape[0], layers.shape[2]))
    for number, size in enumerate(sizes):
        sizes_on_stage = np.maximum(sizes_on_stage, np.where(layers[:, number] > 0, size, 0.0))
    return sizes_on_stage


def partner_layer(
    layers: np.ndarray, groups: Sequence[LayerKind], layer_bytes: Sequence[np.ndarray]
) -> np.ndarray:
    """Activations of the layer of a second micro batch, B, shape (classes, plans).

    Combined passes run a layer with experts forward while another micro batch's runs backward; one further
    micro batch enters the pipeline before (Megatron Core, schedules.py: get_pp_rank_microbatches). Megatron-
    LM's pull request 6311 measures 1.6 of 68.7 GB for DeepSeek-V3's layers, whose tensors are 1.0 GB.

    Args:
        layers: layers of each kind, shape (classes, kinds, plans).
        groups: the kinds.
        layer_bytes: bytes that one layer of each kind keeps, shape (plans,).
    """
    return largest(layers, [size * kind.experts for kind, size in zip(groups, layer_bytes, strict=True)])


def has_partner(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether passes run beside those of another micro batch, whose layer is held too, shape (plans,).

    Where layers are recomputed whole, a forward pass holds no more than one tensor at a time.
    """
    exchanged = plans.overlap_expert.astype(bool) & (plans.expert > 1) & (plans.recompute != FULL)
    return exchanged & (micro_batches(setting, plans) >= 2)


def partner_bytes(
    setting: Setting, plans: Plans, stages: Stages, kept_layers: Iterable[Kept]
) -> np.ndarray | float:
    """Activations of a second micro batch where passes run beside it, B, shape (classes, plans)."""
    if not plans.overlap_expert.any():
        return 0.0
    layer_bytes = [layer.between_passes + layer.reopened for layer in kept_layers]
    beside = partner_layer(stages.layers, stages.groups, layer_bytes)
    return np.where(has_partner(setting, plans), beside, 0.0)


def graph_bytes(stages: Stages, ops: ModelOps, parts: dict[str, np.ndarray]) -> np.ndarray:
    """Bytes of CUDA graphs beside the other parts, shape (classes, plans).

    Args:
        stages: layers of the plans.
        ops: their ops, by levers.
        parts: bytes of the other parts, shape (classes, plans).
    """
    graph_levers = [part.setting.graphs for part in ops.by_levers]
    replayed = np.zeros(stages.index.shape)
    if any(graphs not in ("none", "step") for graphs in graph_levers):
        sizes = [
            ops.gathered([captured(part.setting.graphs, kind, part.layers[n]) for part in ops.by_levers])
            for n, kind in enumerate(stages.groups)
        ]
        replayed = largest(stages.layers, [size[ops.index] for size in sizes])
    if "step" in graph_levers:
        whole_step = ops.gathered([float(graphs == "step") for graphs in graph_levers])[ops.index]
        replayed = replayed + STEP_GRAPHS * whole_step * sum(parts.values())
    return replayed
