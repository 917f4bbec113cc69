"""Modules that selective recomputation names are ops of some model's layers."""

from __future__ import annotations

import pytest

from simulator.models import models
from simulator.ops import Batch, Implementation, Rank, layer
from simulator.ops.rank import Formats
from simulator.training.modules import MODULES


@pytest.fixture(scope="module")
def ops():
    how = Implementation(splits_projection=True, clamps_apart=True)
    batch = Batch.training(1, 128)
    return [
        op
        for name in ("deepseek-v3", "llama3-8b", "gpt-oss-120b")
        for kind in models.get(name).layer_groups
        for op in layer(Rank(models.get(name), batch, how=how), kind.mixer, kind.experts, kind.mlp)
    ]


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_repeats_and_frees_exists(ops, name):
    places = {op.module for op in ops} | {op.part for op in ops}
    assert set(MODULES[name].repeats) <= places
    assert set(MODULES[name].frees) <= places


def test_casts_belong_to_their_product(ops):
    how = Implementation(cast_passes=2.0)
    rank = Rank(models.get("llama3-8b"), Batch.training(1, 128), formats=Formats(linear="fp8"), how=how)
    listed = layer(rank)
    assert {op.module for op in listed if op.beside} == {op.module for op in listed if op.role}
