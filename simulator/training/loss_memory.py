"""Memory of the loss: logits, their gradient, and the output layer that full sharding gathers for it."""

from __future__ import annotations

import numpy as np

from simulator.layout.parameters import head_share
from simulator.layout.stages import by_schedule
from simulator.ops.ends import padded_vocabulary
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.training.activations import LossMemory
from simulator.training.sharding import Sharding

LOGIT_BYTES = {
    "fused": 4,
    "fused-32": 8,
    "native": 10,
    "eager": 6,
    "torch": 12,
    "torch-held": 16,
    "torch-16": 8,
    "chunked": 12,
    "log-probabilities": 14,
}
"""Bytes per logit at the peak of the loss: the 16-bit logits and their gradient. Fused-32 holds 32-bit logits
too. Eager holds 32-bit probabilities, which become the gradient in place, beside the 16-bit logits; native a
cast copy and exponentials of 32 bits (6.0 and 10.1 measured at 8,192 to 262,144 tokens: SkyRL, pull request
1841). Torch holds log-probabilities and two gradients of 32 bits, and where the caller keeps them
(torch-held) 32-bit logits; torch-16 the logits, log-probabilities and two gradients of 16 bits (counted op by
op on a CPU); log-probabilities 16-bit logits and three 32-bit values."""

IN_PLACE_LOGIT_BYTES = {"fused": 2}
"""The same where gradients take the place of the logits (``memory.loss_in_place``)."""

COPIED_LOGIT_BYTES = {"eager": 8}
"""The same where 32-bit probabilities lie beside 32-bit logits (``memory.loss_copies``)."""

KEPT_LOGIT_BYTES = {"torch-held": 4, "torch-16": 2}
"""Bytes per logit that a training loop holds while layers run backward: its logits."""

RESERVED_LOGIT_BYTES = {"torch": 14, "torch-held": 18}
"""Bytes per logit that torch's allocator reserves for the same: the forward pass frees the 16-bit logits, and
no 32-bit tensor of the backward pass fits into their block."""

RESERVED_COPIED_BYTES = {"eager": 10}
"""The same where 32-bit probabilities lie beside 32-bit logits: these no longer fit into the 16-bit block."""

CHUNKED = "chunked", "log-probabilities"
"""Losses that hold the logits of a piece of the sequence."""

LOSS_CHUNK = 1024
"""Tokens whose logits a chunked loss holds at once. Defaults are of this order (Liger, TRL, prime-rl: 256 to
2,048)."""


def loss_memory(sharding: Sharding, classes: int) -> LossMemory:
    """Logits, their gradient and copies on stages with the loss, B, shape (classes, plans)."""
    setting, plans, logits = sharding.setting, sharding.plans, _logits(sharding)
    kernel = setting.choices.cross_entropy
    # Until a barrier is passed a rank keeps its part of the logits, and begins those of the next one.
    barriers = by_schedule(plans, lambda schedule: schedule.output_barriers)
    peak = (_logit_bytes(setting) * logits + _output_layer(sharding)) * (1 + barriers)
    after = np.where(barriers > 0, peak, KEPT_LOGIT_BYTES.get(kernel, 0) * logits)
    share = head_share(plans, classes)
    return LossMemory(share * peak, share * after)


def cached_by_loss(sharding: Sharding, classes: int) -> np.ndarray | float:
    """Bytes that torch's allocator reserves for the loss beyond its peak and fragmentation.

    Shape (classes, plans), or 0 where the order of the loss's tensors is not known.
    """
    setting = sharding.setting
    kernel, fragmentation = setting.choices.cross_entropy, setting.framework.memory.fragmentation
    reserved = RESERVED_LOGIT_BYTES | (RESERVED_COPIED_BYTES if setting.framework.memory.loss_copies else {})
    if kernel not in reserved:
        return 0.0
    unused = max(reserved[kernel] - fragmentation * _logit_bytes(setting), 0.0)
    return unused * head_share(sharding.plans, classes) * _logits(sharding)


def _logit_bytes(setting: Setting) -> float:
    """Bytes per logit at the peak of the loss, as the release computes it."""
    facts = setting.framework.memory
    by_kernel = LOGIT_BYTES | (IN_PLACE_LOGIT_BYTES if facts.loss_in_place else {})
    return (by_kernel | (COPIED_LOGIT_BYTES if facts.loss_copies else {}))[setting.choices.cross_entropy]


def _logits(sharding: Sharding) -> np.ndarray:
    """Logits that the loss holds at once on one device, shape (plans,)."""
    setting, t = sharding.setting, sharding.plans.tensor
    tokens = setting.tokens(sharding.plans)
    if setting.choices.cross_entropy in CHUNKED:
        tokens = np.minimum(tokens, LOSS_CHUNK)
    vocabulary = padded_vocabulary(setting.model, t)
    return tokens * (vocabulary if setting.framework.kernels.gathers_by_product else vocabulary / t)


def _output_layer(sharding: Sharding) -> np.ndarray:
    """Bytes of the whole output layer that the loss finds beside the layers, shape (plans,).

    Full sharding gathers it for the loss; where it is the input table too, it belongs to the root of the
    model, which stays gathered (``_gathered``). A loss in pieces holds its gradient, in log-probabilities
    that of frozen weights too (prime-rl, lm_head.py: grad_weight).
    """
    setting, sharded = sharding.setting, sharding.parameters
    kernel = setting.choices.cross_entropy
    gathered = 0 if setting.model.tied_embeddings else setting.framework.gathers.bytes
    gradient = setting.width * (sharded | (kernel == "log-probabilities")) if kernel in CHUNKED else 0
    return (np.where(sharded, gathered, 0) + gradient) * table_parameters(setting, sharding.plans)


def table_parameters(setting: Setting, plans: Plans) -> np.ndarray:
    """Parameters of an embedding or output table on one device before sharding, shape (plans,)."""
    return padded_vocabulary(setting.model, plans.tensor) / plans.tensor * setting.model.hidden
