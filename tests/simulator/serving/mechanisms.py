"""Mechanisms of a step, as the tests and the laws ask for them."""

from simulator.serving.pool_costs import MECHANISMS

ASKED = {
    "power_cap_w": {"power_cap_w": 200.0},
    "overlap": {"overlap": {"kind": "ladder"}},
    "state": {"state": {"kind": "offloaded"}},
    "stream": {"stream": {"from": "host", "resident": 0.5, "prefetch": False}},
    "finetuning": {"finetuning": {"tpot": 0.5}},
    "speculation": {"speculation": {"kind": "ngram", "tokens": 3}},
    "adapters": {"adapters": {"count": 20, "rank": 16}},
}
SHORTER = {"overlap"}
"""Mechanisms that make a step shorter."""
EXCLUDED = {
    frozenset((mechanism.key, other)): why
    for mechanism in MECHANISMS
    for other, why in mechanism.excludes.items()
}
