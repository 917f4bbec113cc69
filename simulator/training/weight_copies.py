"""Copies of weights that a release holds beside those that it trains: gathered ones, and narrow ones."""

from __future__ import annotations

import numpy as np

from simulator.layout.model_ops import LeverOps, ModelOps
from simulator.layout.parameters import Parameters
from simulator.layout.stages import Stages
from simulator.ops.build import CAST_BYTES
from simulator.ops.op import Product
from simulator.state.adapter import BASE_BYTES, TABLE_BYTES
from simulator.training.sharding import Sharding


def parameters_between_passes(sharding: Sharding, counts: Parameters, stored: np.ndarray) -> np.ndarray:
    """Bytes of parameters on each class of stage, shape (classes, plans).

    FSDP that reshards gradients alone keeps what it gathered, in the working format, until the update, beside
    its 32-bit shards (torch, fully_shard: reshard_after_forward false). Beside adapters the tables of the
    model's ends stay wide, however narrow the frozen weights of layers are: sharded ones in the working
    format, since FSDP needs one format (trl, models/utils.py: is_sharded_qlora skips PEFT's cast).

    Args:
        sharding: of the plans.
        counts: their parameters.
        stored: bytes of the parameters as the optimizer updates them, shape (classes, plans).
    """
    setting, partly = sharding.setting, sharding.plans.zero == 2
    if adapter := setting.training.adapter:
        cast = TABLE_BYTES.get(adapter.base, setting.width)
        table = np.where(sharding.parameters, min(cast, setting.width), cast)
        wider = np.maximum(table - BASE_BYTES[adapter.base], 0.0)
        return stored + wider * counts.ends / sharding.pieces("parameters", False)
    if setting.framework.memory.separate_master or not partly.any():
        return stored
    unsharded = np.zeros(stored.shape)
    for experts, number in ((False, counts.dense), (True, counts.experts)):
        shards = sharding.pieces("gradients", experts)
        both = setting.framework.gathers.bytes + setting.parameter_bytes / shards
        unsharded = unsharded + number * np.where(shards > 1, both, setting.parameter_bytes)
    return np.where(partly, unsharded, stored)


def narrow_copies(sharding: Sharding, stages: Stages, ops: ModelOps) -> np.ndarray:
    """Bytes of narrow weights that products read, less 16-bit ones in their place, shape (classes, plans).

    Transformer Engine casts 16-bit weights once a step and keeps the result for all micro batches (Megatron
    Core, extensions/transformer_engine.py: is_first_microbatch); with ``narrow_parameters`` the optimizer
    writes the narrow weights. Weights that are gathered layer by layer have no copies.
    """
    setting, copied = sharding.setting, np.zeros(stages.index.shape)
    precision, adapter = setting.training.precision, setting.training.adapter
    if not setting.framework.memory.narrow_copies or precision not in CAST_BYTES or adapter:
        return copied
    # With scales of blocks there is a copy of rows and one of columns on every device.
    layouts = setting.cluster.device.generation.fp8_layouts if precision == "fp8" else 2
    replaced = setting.parameter_bytes if setting.choices.narrow_parameters else 0.0
    width = np.where(sharding.parameters, 0.0, layouts * CAST_BYTES[precision] - replaced)
    for number in range(len(stages.groups)):
        size = ops.gathered(
            [_narrow_parameters(part, number, setting.formats.linear) for part in ops.by_levers]
        )
        copied = copied + stages.layers[:, number] * width * size[ops.index]
    return copied


def _narrow_parameters(part: LeverOps, number: int, dtype: str) -> np.ndarray | float:
    """Parameters of one layer's products that run in a number format, shape (plans,)."""
    products = (op for op in part.layers[number] if isinstance(op, Product) and op.dtype == dtype)
    return sum((op.parameters for op in products), 0.0)
