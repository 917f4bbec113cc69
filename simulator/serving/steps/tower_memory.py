"""Memory that vLLM takes for a vision tower: its weights on every pipeline stage, and its profiling run.

Source: vLLM 0.19. gpu_model_runner.py, profile_run: every rank encodes the largest items that the encoder's
budget holds, and keeps their embeddings beside the step of the language model. qwen3_vl.py: every rank builds
the tower.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.models.towers import Tower
from simulator.ops.tower import tower_parameters
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.weight_only import ENDS_BYTES

PIXEL_BYTES = 6.0
"""A colour of a pixel in 32 bits, as the processor gives it, and in 16."""


class Encoded(NamedTuple):
    """Bytes on one device that the tower's part of a profiling run takes."""

    peak: float
    """While the tower runs."""
    outputs: float
    """Embeddings that stay until the run's end."""


def profiled(price: StepPrice, budget: int) -> Encoded:
    """Return what encoding the largest pictures takes; nothing without a tower or outside of vLLM.

    Args:
        price: model, pool and engine.
        budget: maximum query tokens of a step; the encoder has no less than the largest picture's.
    """
    tower = price.model.tower
    if tower is None or price.engine.engine != "vllm":
        return Encoded(0.0, 0.0)
    shape = tower.shape(tower.largest)
    pictures = max(budget // shape.tokens, 1)
    outputs = ENDS_BYTES * pictures * shape.tokens * price.model.hidden * (1 + tower.taps)
    return Encoded(pictures * shape.patches * _patch_bytes(tower, price.pool.tensor) + outputs, outputs)


def _patch_bytes(tower: Tower, tensor: int) -> float:
    """Pixels, the residual and its norm, and the wider of attention (queries, keys and values, their copies,
    rotated queries and keys) and MLP (both sides of the activation)."""
    attention = 8.0 * tower.hidden
    mlp = (2.0 + tower.gated) * tower.feed_forward
    wide = 2.0 * tower.hidden + max(attention, mlp) / tensor
    return PIXEL_BYTES * tower.patch_inputs + ENDS_BYTES * wide


def tower_bytes_of_stages(price: StepPrice) -> list[float]:
    """Return the bytes of the towers' weights on one device of each pipeline stage."""
    model, stages = price.model, price.pool.pipeline
    count = sum(tower_parameters(tower) for tower in (model.tower, model.audio) if tower is not None)
    size = count * ENDS_BYTES / price.pool.tensor
    return [size if stage == 0 or price.engine.engine == "vllm" else 0.0 for stage in range(stages)]
