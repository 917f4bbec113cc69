"""Numbers that say where they come from."""

from __future__ import annotations

import pytest
from pydantic import Field

from core.errors import InputError
from core.loading import Strict, build
from core.sources import USER, Sourced
from hwmodels.collectives.calibration import fabric_calibrations, link_calibrations


class Link(Strict):
    start_s: float
    efficiency: float


class Measured(Sourced):
    UNSOURCED = frozenset({"rows"})

    name: str
    seconds: float
    link: Link
    passes: dict[str, float] = Field(default_factory=dict)
    shared: bool = False
    rows: int = 0


BARE = {"name": "a", "seconds": 2.0, "link": {"start_s": 1e-5, "efficiency": 0.9}, "rows": 3}
NCCL = {"source": "NCCL 2.27, tuning.cc", "kind": "read"}


def sources(made):
    return {key: (origin.value, origin.kind, origin.source) for key, origin in made.origins.items()}


def test_a_bare_number_is_assumed_by_the_user():
    made = build(Measured, BARE, "mine.yaml")
    user = ("assumed", "user")
    assert sources(made) == {
        "seconds": (2.0, *user),
        "link.start_s": (1e-5, *user),
        "link.efficiency": (0.9, *user),
    }


def test_sources_change_no_value_and_are_not_dumped():
    given = {**BARE, "seconds": {"value": 2.0, **NCCL}, "link": {**BARE["link"], **NCCL}}
    made, bare = build(Measured, given, "mine.yaml"), build(Measured, BARE, "mine.yaml")
    assert made.model_dump() == bare.model_dump()


def test_a_mapping_of_numbers_has_its_source_but_for_those_with_their_own():
    link = {"start_s": {"value": 1e-5, "kind": "measured", "source": "a sweep"}, "efficiency": 0.9, **NCCL}
    made = build(Measured, {**BARE, "link": link, "passes": {"value": {"fp8": 2}, **NCCL}}, "mine.yaml")
    assert sources(made) == {
        "seconds": (2.0, "assumed", "user"),
        "link.efficiency": (0.9, "read", NCCL["source"]),
        "passes.fp8": (2, "read", NCCL["source"]),
        "link.start_s": (1e-5, "measured", "a sweep"),
    }
    assert [origin.kind for origin in made.origins.values()] == ["assumed", "read", "read", "measured"]


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ({"value": 2.0, "kind": "read"}, "seconds: key 'source' is missing"),
        ({"value": 2.0, "source": "x"}, "seconds: key 'kind' is missing"),
        ({"value": 2.0, "source": "x", "kind": "guessed"}, "seconds.kind: must be assumed, derived, read"),
        ({"value": 2.0, "source": "x", "kind": "read", "unit": "s"}, "seconds: unknown key 'unit'"),
        ({"value": "2.0", "source": "x", "kind": "read"}, "seconds: must be a number"),
    ],
)
def test_a_wrong_origin_names_its_key(seconds, message):
    with pytest.raises(InputError, match=f"mine.yaml: {message}"):
        build(Measured, {**BARE, "seconds": seconds}, "mine.yaml")


@pytest.mark.parametrize("catalogue", [link_calibrations, fabric_calibrations], ids=lambda kind: kind.kind)
def test_each_number_of_links_and_fabrics_names_its_source(catalogue):
    for calibration in catalogue:
        assert len(calibration.origins) >= 15
        for key, origin in calibration.origins.items():
            assert origin.source != USER, f"{calibration.name}: {key}: {origin.value} without a source"
