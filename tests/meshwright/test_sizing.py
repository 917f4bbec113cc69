"""Sizes: the counts that are tried, the front, and the deadline."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import meshwright as mw
from core.errors import InputError
from hwmodels.cluster import clusters
from meshwright.pages.sizing import sizing_page
from meshwright.reports.sizing import _near
from planner.training.sizing import Size, Sizing, counts

QUESTION = {"model": "llama3.1-8b", "seq_len": 4096, "global_batch": 64, "tokens": 1e12}


@pytest.fixture(scope="module")
def sizing() -> Sizing:
    return mw.size(**QUESTION, clusters=["dgx-h100", "dgx-a100-80gb"], gpus=(8, 32))


def test_counts_double_and_stay_whole_nodes():
    found = counts(clusters.get("dgx-h100"), 4, 100)
    assert found == [4, 6, 8, 16, 24, 32, 48, 64, 96]


def test_counts_stop_at_the_cluster_and_refuse_an_empty_range():
    cluster = clusters.get("dgx-h100")
    have = cluster.nodes * cluster.devices_per_node
    assert counts(cluster, have, 10 * have) == [have]
    with pytest.raises(InputError, match="LEAST"):
        counts(cluster, 16, 8)


@pytest.mark.slow
def test_each_size_is_the_plan_of_its_own_search(sizing):
    for size in sizing.sizes:
        cluster, gpus = size.cluster, size.gpus
        question = {name: value for name, value in QUESTION.items() if name != "tokens"}
        best = mw.plan(**question, cluster=cluster, gpus=gpus).best
        assert size.result is not None
        assert size.result.plans.plan(0) == best.plan
        assert size.usd == pytest.approx(best.usd_per_million_tokens * 1e6)
        assert size.days * best.tokens_per_s_per_gpu * gpus * 86400 == pytest.approx(1e12)


def test_nothing_beats_the_front(sizing):
    front = sizing.front
    assert front
    for size in sizing.sizes:
        beaten = [other for other in front if other.days <= size.days and other.usd <= size.usd]
        assert beaten


def test_the_cheapest_meets_the_deadline(sizing):
    days = sorted(size.days for size in sizing.sizes)
    late = replace(sizing, deadline_days=days[1])
    assert late.cheapest in late.within
    assert len(late.within) == 2
    assert replace(sizing, deadline_days=days[0] / 2).cheapest is None
    assert late.fastest is not None
    assert late.fastest.days == days[0]


def test_a_budget_leaves_what_costs_no_more(sizing):
    dollars = sorted(size.usd for size in sizing.sizes)
    tight = replace(sizing, budget_usd=dollars[1])
    assert sorted(size.usd for size in tight.within) == dollars[:2]
    assert tight.fastest_within == min(tight.within, key=lambda size: size.days)
    assert replace(sizing, budget_usd=dollars[0] / 2).cheapest is None


def test_a_size_without_a_plan_says_why():
    found = mw.size(
        model="llama3.1-70b",
        seq_len=4096,
        global_batch=64,
        tokens=1e12,
        clusters=["dgx-a100-40gb"],
        gpus=(8, 8),
    )
    (size,) = found.sizes
    assert isinstance(size, Size)
    assert "fit" in size.problem
    assert found.cheapest is None


def test_the_command_prints_sizes_and_exits_1_where_all_are_late(run):
    flags = ["--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "8..16", "--seq-len", "4096"]
    asked = ["plan", "size", *flags, "--global-batch", "64", "--tokens", "1e12"]
    assert "Cheapest" in run(*asked).out
    late = run(*asked, "--days", "0.1")
    assert late.code == 1
    assert "late" in late.out


def test_a_bad_range_is_refused(run):
    flags = ["--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "8..x", "--seq-len", "4096"]
    bad = run("plan", *flags, "--global-batch", "64")
    assert bad.code == 2
    assert "range 256..2048" in bad.err


QLORA = ["plan", "size", "--model", "llama3.1-8b", "--cluster", "rtx-4090-8", "--seq-len", "2048"]
QLORA += ["--global-batch", "8", "--adapter", "16:nf4", "--tokens", "50M", "--gpus"]


def test_passes_over_the_tokens_multiply_time_which_has_its_band_in_hours(run):
    once, thrice = (json.loads(run(*QLORA, "1", "--json", *more).out) for more in ([], ["--epochs", "3"]))
    assert thrice["tokens"] == 3 * once["tokens"]
    assert thrice["sizes"][0]["days"] == pytest.approx(3 * once["sizes"][0]["days"])
    head = run(*QLORA, "1").out.splitlines()[0]
    assert re.match(
        r"Fastest and cheapest: 1 GPU of rtx-4090-8, [\d.]+ h \([\d.]+ to [\d.]+\), [\d.]+ \$ \(", head
    ), head


def test_one_cluster_is_named_above_its_sizes_and_two_in_their_rows(run):
    dense = [
        "plan",
        "size",
        "--model",
        "llama3.1-8b",
        "--gpus",
        "8..16",
        "--seq-len",
        "4k",
        "--global-batch",
        "64",
    ]
    one = run(*dense, "--tokens", "1T", "--cluster", "dgx-h100").out
    assert "1T tokens on dgx-h100" in one and "cluster " not in one
    assert "front: no other size is both faster and cheaper." in one
    assert "cluster " in run(*dense, "--tokens", "1T", "--cluster", "dgx-h100,dgx-b200").out


def test_the_fastest_of_about_the_least_cost_is_named():
    def size(gpus, days, usd):
        return Size("dgx-h100", gpus, None, "", days, usd, 1.0)

    sizing = Sizing(1e12, None, [size(8, 100.0, 100.0), size(16, 50.0, 104.0), size(64, 20.0, 150.0)])
    words = _near(sizing, sizing.sizes[0], sizing.sizes[2])
    assert words[0].startswith("Fastest within 5 % of the cheapest: 16 GPUs of dgx-h100, 50 d")
    assert not _near(sizing, sizing.sizes[0], sizing.sizes[1])


def test_sizes_without_a_plan_for_one_reason_are_one_line(run):
    assert "16, 24, 32, 48, 64" in run(*QLORA, "8..64").out


def test_sizes_that_take_less_than_a_day_are_drawn_in_hours():
    sizing = mw.size(
        model="llama3.2-1b", clusters=["dgx-h100"], gpus=(1, 2), seq_len=2048, global_batch=16, tokens=1e8
    )
    figure = sizing_page(sizing).sections[0].figure
    assert figure is not None and figure["layout"]["xaxis"]["title"]["text"] == "hours"
    assert sorted(figure["data"][1]["x"]) == sorted(24.0 * size.days for size in sizing.sizes)
