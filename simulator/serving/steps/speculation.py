"""Speculative decoding: tokens accepted per step, against the cost of drafting and verification."""

from __future__ import annotations

import re
from typing import NamedTuple

from simulator.serving.steps.table import IterationTable


class Draft(NamedTuple):
    """Cost of one draft."""

    layers: float
    """Layers of the target model that drafting runs, one token after the other."""
    tokens: int
    """Tokens that the target verifies in one step."""
    host_s: float
    """Host time of a step, s: building the tree, comparing tokens."""


DRAFTS = {
    # Draft heads on the last hidden state, run at once.
    "medusa": Draft(0.5, 64, 2e-3),
    "hydra": Draft(2.0, 64, 3e-3),
    # An autoregressive head of one layer, 5 deep.
    "eagle": Draft(5.0, 26, 4e-3),
    "eagle2": Draft(6.0, 60, 4e-3),
    # Tokens from the prompt, a data store or earlier steps.
    "pld": Draft(0.0, 10, 0.5e-3),
    "rest": Draft(0.0, 64, 3e-3),
    "lookahead": Draft(0.0, 120, 1e-3),
    "recycling": Draft(0.0, 80, 1e-3),
    "samd": Draft(0.0, 60, 2e-3),
    "samd[eagle2]": Draft(6.0, 60, 4e-3),
    "samd[recycling]": Draft(0.0, 80, 2e-3),
    "sps": Draft(0.0, 5, 3e-3),
}
"""Depth and tokens of published methods at their default settings: Medusa 64 candidates (Cai et al. 2024),
EAGLE a tree of 26 and depth 5, EAGLE-2 60 tokens and depth 6 (Li et al. 2024), Lookahead W15 N5 G15 (Fu et
al. 2024), others as their papers; host times are assumed."""
SMALL_MODEL_SHARE = 0.25
"""Time of one token of a separate draft model (68M parameters) over that of a layer stack of the target."""


def draft_cost(method: str) -> Draft | None:
    """Return the cost of a method's drafts; None where not known."""
    name = re.sub(r"[^a-z0-9\[\]]", "", method.lower())
    return DRAFTS.get(name) or DRAFTS.get(name.split("[")[0])


def speed_up(table: IterationTable, method: str, accepted: float, keys: float, batch: int = 1) -> float:
    """Return the throughput with speculation over that without.

    Args:
        table: step times of the target model.
        method: drafting method.
        accepted: mean tokens of a step, including the target's own token.
        keys: mean context, tokens.
        batch: sequences.

    Raises:
        KeyError: an unknown method.
    """
    draft = draft_cost(method)
    if draft is None:
        raise KeyError(method)
    kv = int(batch * keys)
    plain = table.step((), batch, kv)
    verify = table.step((), batch, kv, queries=draft.tokens)
    drafting = plain / table.price.model.layers * draft.layers
    return accepted * plain / (verify + drafting + draft.host_s)
