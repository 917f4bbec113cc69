"""Exchanges between attention ranks and experts."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.serving.names import find_cluster
from simulator.serving.steps.all_reduce import exchange_seconds

HIDDEN, EXPERTS_OF_TOKEN, TOKENS = 7168, 8, 4
"""Of DeepSeek-V3, and tokens of a rank."""


@pytest.mark.parametrize(
    ("gpu", "ranks", "published"), [("h200-sxm", 8, 25e-6), ("b200", 8, 44e-6), ("gb300", 4, 35e-6)]
)
def test_deepep_takes_what_its_tables_say_for_few_tokens(gpu, ranks, published):
    """Dispatch in 8 bits and combine in 16 (low-latency kernels in SGLang 0.5.12)."""
    cluster, sent = find_cluster(gpu), np.array([1.0, 2.0]) * TOKENS * EXPERTS_OF_TOKEN * HIDDEN
    both = float(np.sum(exchange_seconds(cluster, ranks, sent, deepep=True)))
    assert both == pytest.approx(published, rel=0.15)
    assert both > float(np.sum(exchange_seconds(cluster, ranks, sent)))
