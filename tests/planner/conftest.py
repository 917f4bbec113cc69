"""Small questions that a search answers in milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hwmodels.cluster import clusters
from planner.training.candidates import Enumeration
from planner.training.rules import RULES
from planner.training.space import Space
from simulator.frameworks import frameworks
from simulator.models import Model
from simulator.plan import Plan, concatenate
from simulator.setting import Setting
from simulator.workload import Training

SMALL = {
    "name": "small",
    "layers": 12,
    "hidden": 4096,
    "heads": 32,
    "feed_forward": 16384,
    "vocabulary": 51200,
    "bias": True,
    "tied_embeddings": True,
}
EXPERTS = {"experts": 8, "top_k": 2, "feed_forward": 8192}


@pytest.fixture(scope="session")
def ask() -> Callable[..., Setting]:
    """Build a setting from a small model; keywords change the model, ``experts`` gives it 8.

    Its release offers no levers: these searches are of structures, those of levers are in ``test_levers``.
    """
    release = frameworks.get("megatron-core")
    release = release.changed({"offers": {"schedule": release.offers["schedule"]}})

    def build(
        cluster: str = "dgx-a100-40gb",
        batch: int = 16,
        seq_len: int = 2048,
        experts: bool = False,
        **model: object,
    ) -> Setting:
        return Setting(
            Model(**{**SMALL, **model, "moe": EXPERTS if experts else None}),  # type: ignore[arg-type]
            clusters.get(cluster),
            Training(seq_len=seq_len, global_batch=batch),
            release,
        )

    return build


@pytest.fixture(scope="session")
def survivors() -> Callable[[Space], list[Plan]]:
    """Every plan of a space that the rules keep, in order."""

    def keep(space: Space) -> list[Plan]:
        blocks = [block.plans for block in Enumeration(space, RULES).blocks()]
        return list(concatenate(blocks)) if blocks else []

    return keep
