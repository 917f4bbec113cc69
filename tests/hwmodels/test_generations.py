"""Generations: each shipped one states every fact with its source; a new one says what it is like."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from core.errors import InputError
from core.loading import build
from hwmodels.device import Device, devices
from hwmodels.generation import NAMES, Generation, generations
from simulator.frameworks.default import default_framework, default_rules

ROOT = Path(__file__).parents[2]
FACTS = [name for name in Generation.model_fields if name not in NAMES]


def own(**changes) -> dict:
    """A definition of a device of one's own, like the B200."""
    shipped = dict(devices.definition("b200"))
    return shipped | {"name": "own-gpu", "aliases": []} | changes


@pytest.mark.parametrize("name", generations.names())
@pytest.mark.parametrize("fact", FACTS)
def test_a_shipped_generation_states_every_fact_with_its_source(name, fact):
    stated = generations.definition(name)
    assert fact in stated, f"{name} leaves {fact} unsaid"
    assert set(stated[fact]) == {"value", "kind", "source"}
    assert len(stated[fact]["source"]) > 10 or stated[fact]["source"].startswith("as ")


def test_a_fact_left_unsaid_is_refused():
    stated = {name: value for name, value in generations.definition("hopper").items() if name != "deepgemm"}
    with pytest.raises(InputError, match="hopper leaves deepgemm unsaid"):
        build(Generation, stated, "own")


def test_every_shipped_generation_has_one_default_framework():
    listed = [name for rule in default_rules() for name in rule.generations]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(generations.names())
    assert all(set(listed) & {*generations.get(name).lineage} for name in generations.names())


def test_no_code_asks_for_a_generation_by_name():
    named = re.compile(rf"""["']({"|".join(set(generations.names()) - {"cpu"})})["']""")
    asking = {
        f"{path.relative_to(ROOT)}: {word}"
        for package in ("core", "hwmodels", "simulator", "planner", "meshwright", "profiles")
        for path in (ROOT / package).rglob("*.py")
        for word in named.findall(path.read_text(encoding="utf-8"))
    }
    # The measured ratio of two attention kernels is the A100's; engines state times of Blackwell apart.
    assert asking == {
        "simulator/pricing/kernels.py: ampere",
        "simulator/serving/engines/__init__.py: blackwell",
    }


def test_a_new_generation_is_like_the_one_that_it_is_based_on():
    like = {"name": "next", "based_on": "blackwell", "cold_operands": 1.5}
    device = build(Device, own(generation=like), "own.yaml")
    assert device.generation.lineage == ("next", "blackwell")
    assert device.generation.cold_operands == 1.5
    assert device.generation.packed_scales
    assert default_framework(device).framework == default_framework(devices.get("b200")).framework
    assert pickle.loads(pickle.dumps(device)).generation.lineage == device.generation.lineage
    assert device.at_clock(0.9 * device.clock_hz).generation is device.generation if device.clock_hz else True


def test_a_generation_may_be_a_file_beside_the_device(tmp_path):
    (tmp_path / "next.yaml").write_text("name: next\nbased_on: hopper\nmxfp4_triton: false\n")
    device = build(Device, own(generation="next.yaml"), "own.yaml", tmp_path)
    assert device.generation.name == "next"
    assert not device.generation.mxfp4_triton
    assert device.generation.deepgemm


@pytest.mark.parametrize(
    ("generation", "told"),
    [
        ("blackwel", "based_on: blackwell}; did you mean 'blackwell'?"),
        ("zenith", "{name: zenith, based_on: blackwell}"),
        ({"name": "next"}, "next leaves cold_operands"),
        ({"name": "next", "based_on": "blackwel"}, "did you mean 'blackwell'"),
        ({"name": "next", "based_on": "hopper", "deepgem": True}, "deepgem"),
        ({"name": "next", "based_on": "hopper", "cold_operands": 0.5}, "cold_operands"),
    ],
)
def test_bad_generations_are_refused_in_a_sentence(generation, told):
    with pytest.raises(InputError) as caught:
        build(Device, own(generation=generation), "own.yaml")
    assert told in str(caught.value)


def test_borrowed_kernels_are_no_measured_device():
    device = build(Device, own(), "own.yaml")
    assert device.borrows
    assert not any(devices.get(name).borrows for name in devices.names())
