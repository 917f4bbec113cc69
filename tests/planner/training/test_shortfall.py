"""The answer when nothing fits."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodels.cluster import clusters
from planner.training.candidates import Enumeration
from planner.training.constraints import Constraints
from planner.training.rules import STRUCTURE, plan_memory
from planner.training.search import search
from planner.training.shortfall import explain
from planner.training.space import Space
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.setting import Setting
from simulator.workload import Training

BIG = {"layers": 48, "hidden": 8192, "heads": 64, "feed_forward": 32768}


@pytest.fixture
def refused(ask):
    return search(ask(**BIG), 8)


def test_has_no_plans_and_a_reason(refused):
    assert refused.scored == 0
    assert len(refused.plans) == len(refused.step.time) == len(refused.memory.peak) == 0
    assert refused.runner_up_gap is None
    assert refused.removed["memory"] > 0
    assert sum(refused.removed.values()) == refused.candidates


def test_names_the_plan_that_needs_least(refused):
    blocks = Enumeration(refused.space, STRUCTURE).blocks()
    least = min(float(np.min(plan_memory(block).peak)) for block in blocks)
    short = refused.shortfall
    assert short.nearest.peak_bytes == least
    assert short.short_bytes == least - refused.setting.cluster.device.memory_bytes > 0
    assert sum(short.nearest.parts.values()) == pytest.approx(least)


def test_more_devices_are_the_fewest_doublings_that_fit(ask, refused):
    more = [remedy for remedy in refused.shortfall.remedies if remedy.change.startswith("more devices")]
    fitting = [remedy for remedy in more if remedy.fits]
    assert fitting
    devices = fitting[0].nearest.plan.devices
    assert fitting[0].change == f"more devices: {devices}"
    assert search(ask(**BIG), devices, top=1).scored > 0
    assert search(ask(**BIG), devices // 2, top=1).scored == 0


def test_offers_to_let_go_of_the_constraint_that_hurts(ask):
    held = Constraints.parse(["recompute=none", "zero=0", "tensor=1"], ["pipeline=2"])
    short = search(ask(layers=24), 16, held).shortfall
    remedies = {remedy.change: remedy for remedy in short.remedies}
    assert remedies["another tensor"].fits
    assert remedies["another tensor"].nearest.plan.tensor > 1
    assert all(remedy.nearest.peak_bytes < short.nearest.peak_bytes for remedy in short.remedies)
    assert [remedy.fits for remedy in short.remedies] == sorted(
        (r.fits for r in short.remedies), reverse=True
    )


def test_says_it_in_words(refused):
    said = refused.shortfall.message()
    assert f"{refused.shortfall.short_bytes / 2**30:,.1f} GiB short" in said
    assert "optimizer" in said
    assert "more devices" in said


def test_a_model_of_several_kinds_of_layers_that_fits_nowhere_has_a_reason():
    setting = Setting(
        models.get("deepseek-v3"),
        clusters.get("dgx-h100").resized(8),
        Training(seq_len=4096, global_batch=8),
        frameworks.get("megatron-core"),
    )
    found = search(setting, 8, Constraints.parse(["micro_batch=1", "pipeline=1"]))
    assert found.scored == len(found.plans) == 0
    assert found.shortfall.short_bytes > 0


def test_what_the_host_could_hold_is_offered():
    """70B with full state on one node of 640 GB: gradients and optimizer fit in its host memory."""
    training = Training(seq_len=2048, global_batch=64)
    cluster = clusters.get("dgx-h100").resized(8)
    setting = Setting(models.get("llama3-70b"), cluster, training, frameworks.get("torch-fsdp"))
    found = explain(Space.of(setting, 8))
    remedy = next(each for each in found.remedies if "plan.place" in each.change)
    assert remedy.fits
    assert remedy.nearest.plan.place.optimizer.host == 1.0
    assert remedy.nearest.peak_bytes <= found.capacity_bytes
