"""Pages: what is in them, that nothing in a name becomes markup, and that a browser draws the charts."""

import json
import re
import resource
import shutil
import subprocess
import sys
from html import escape, unescape

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.from_times import from_times
from meshwright.pages.gantt import MOST_BLOCKS, compute_blocks, gantt
from meshwright.pages.step import MOMENTS, fullest
from meshwright.reports.parts import GROUPS, grouped
from simulator.schedules import PipelineTimes, schedules
from simulator.training.step_graph import run as run_step

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)><b>bold</b>"

VARIATIONS = f"""
title: "{EVIL}"
variations:
  "{EVIL}": {{sweep: {{workload.global_batch: [32, 64, 128]}}}}
  grid: {{sweep: {{workload.global_batch: [32, 64], plan.recompute: [none, full]}}}}
  words: {{sweep: {{plan.recompute: [none, selective, full]}}}}
  tensor: {{set: {{plan.tensor: 3}}}}
"""


@pytest.fixture
def step_page(run, scenario, tmp_path):
    """The page of a step of the small scenario, with an evil title."""
    path = tmp_path / "step.html"
    evil = scenario(("model: llama2-7b", f'title: "{EVIL}"\nmodel: llama2-7b'))
    ran = run("simulate", str(evil), "--html", str(path))
    assert ran.code == 0, ran.err
    return path


@pytest.fixture
def variations_page(run, scenario, tmp_path):
    """The page of variations of the small scenario, with evil names."""
    path = tmp_path / "variations.html"
    asked = scenario()
    asked.write_text(asked.read_text(encoding="utf-8") + VARIATIONS, encoding="utf-8")
    ran = run("whatif", str(asked), "--html", str(path))
    assert ran.code == 0, ran.err
    return path


def figures(text):
    """The charts of a page."""
    found = re.findall(r'<script type="application/json" id="[^"]*">(.*?)</script>', text, re.DOTALL)
    return [json.loads(each) for each in found]


def test_the_page_of_a_step_has_its_four_charts(step_page):
    charts = figures(step_page.read_text(encoding="utf-8"))
    assert len(charts) == 4
    pipeline, time, memory, traffic = charts
    assert {"forward", "backward", "optimizer", "pipeline", "data"} <= {
        each.get("name") for each in pipeline["data"]
    }
    totals = np.sum([each["x"] for each in time["data"]], axis=0)
    assert totals == pytest.approx(totals[0])
    assert [each["name"] for each in memory["data"]] == ["rank 0", "rank 1"]
    assert {each["name"] for each in traffic["data"]} == {"tensor", "pipeline sends", "data parallel"}


def test_the_page_of_variations_has_a_chart_for_each_sweep(variations_page):
    text = variations_page.read_text(encoding="utf-8")
    charts = figures(text)
    assert [chart["data"][0]["type"] for chart in charts] == ["bar", "scatter", "bar", "bar"]
    assert "32 attention heads" in text  # why one of them cannot be run


def test_pages_load_nothing_from_elsewhere(step_page):
    text = step_page.read_text(encoding="utf-8")
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)\s*=", text.split("<script>", 1)[0])
    assert len(re.findall(r"<script src=", text)) == 0


def test_a_name_never_becomes_markup(step_page, variations_page):
    for path in (step_page, variations_page):
        text = path.read_text(encoding="utf-8")
        assert EVIL not in text
        assert "<script>document.title" not in text
        assert "<img src=x" not in text
        assert f"<h1>{escape(EVIL)}</h1>" in text


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Open a page in a browser without a window; returns the document that it made of it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed to draw the page")
    profile = tmp_path_factory.mktemp("browser")

    def drawn(path) -> str:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options += [f"--user-data-dir={profile}", "--virtual-time-budget=20000", "--dump-dom"]
        done = subprocess.run(
            [browser, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout

    return drawn


@pytest.mark.slow
def test_a_browser_draws_every_chart_of_a_step(drawn, step_page):
    document = drawn(step_page)
    body = document.rpartition("<main>")[2].partition("</main>")[0]
    assert body.count('class="main-svg"') >= 8
    for word in ("forward", "backward", "matrix products", "what the device has", "GB that a device sends"):
        assert word in body
    assert len(re.findall(r'<path class="js-fill"', body)) >= 6
    assert len(re.findall(r'<g class="point"', body)) >= 12
    assert unescape(re.search(r"<title>(.*?)</title>", document).group(1)) == EVIL


@pytest.mark.slow
def test_a_browser_draws_every_chart_of_variations(drawn, variations_page):
    body = drawn(variations_page).rpartition("<main>")[2].partition("</main>")[0]
    assert body.count('class="main-svg"') >= 8
    assert 'class="cbfill' in body, "no map of two fields has its scale of colours"
    assert len(re.findall(r'data-unformatted="[\d,]+&lt;br&gt;[\d.]+ ', body)) >= 4, (
        "cells of a map have no text"
    )
    assert "<img" not in body
    shown = [unescape(text) for text in re.findall(r'data-unformatted="([^"]*)"', body)]
    assert any(EVIL in unescape(text) for text in shown)


# ---- what the charts are made of ---------------------------------------------------------------------


def timeline(schedule, stages, micro_batches, chunks=1):
    times = PipelineTimes.of_equal(
        stages, micro_batches, chunks, (1.0, 1.0, 1.0), (2.0, 2.0, 2.0), 0.0, False
    )
    return run_step(from_times(schedules[schedule], times))


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
def test_each_pass_of_each_micro_batch_is_one_block(name):
    ran = timeline(name, 4, 8)
    for rank in range(4):
        blocks = compute_blocks(ran, rank)
        kinds = 3 if schedules[name].splits_backward else 2
        assert len(blocks) == len({(each.kind, each.micro_batch) for each in blocks}) == kinds * 8
        assert sum(each.end - each.start for each in blocks) == pytest.approx(ran.busy(rank))


def test_long_steps_are_drawn_at_both_ends():
    ran = timeline("1f1b", 8, 1600)
    figure, window = gantt(ran, [f"rank {rank}" for rank in range(8)])
    assert not window.complete
    spans = [figure["layout"][name]["range"] for name in ("xaxis1", "xaxis2")]
    assert spans[0] == [0, window.length]
    assert spans[1] == [pytest.approx(ran.seconds - window.length), ran.seconds]
    drawn = sum(len(each["blocks"]["row"]) for each in figure["data"] if "blocks" in each)
    assert drawn == pytest.approx(MOST_BLOCKS, rel=0.01)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=6 * MOMENTS), st.floats(0.1, 100))
def test_a_thinned_curve_keeps_its_peak_and_its_end(changes, end):
    held = np.concatenate(([0.0], np.cumsum(changes)))
    times = end * np.linspace(0, 1, len(held)) ** 2
    at, height = fullest(times, held, end)
    assert len(at) <= MOMENTS + 1
    assert height.max() == held.max()
    assert at[0] == 0.0
    assert at[-1] == end
    assert (np.diff(at) >= 0).all()


def test_groups_of_parts_keep_the_sum():
    parts = {"gemm": 1.0, "norm": 0.25, "tensor": 0.5, "gradients": 0.1, "parameters": 0.2, "bubble": 3.0}
    found = grouped({**parts, "something new": 0.05})
    assert sum(found.values()) == pytest.approx(5.1)
    assert found["data parallel"] == pytest.approx(0.3)
    assert found["other kernels"] == pytest.approx(0.3)
    assert list(found) == [group for group in GROUPS if group in found]


# ---- what can go wrong ---------------------------------------------------------------------------------


def test_a_page_that_cannot_be_written_is_one_message_after_the_figures(run, scenario, tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    ran = run("simulate", str(scenario()), "--html", str(path), "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["step_time_s"] > 0
    assert ran.err.strip().splitlines()[-1] == f"error: {path}: cannot be written (Is a directory)"
    assert list(path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("option", "name"), [("--html", "step.html"), ("--trace", "step.json")])
def test_a_full_disk_leaves_no_half_a_file(scenario, tmp_path, option, name):
    """A limit on the size of files stops writing half-way, as a full disk does."""
    folder = tmp_path / "out"
    folder.mkdir()

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [sys.executable, "-B", "-m", "meshwright", "simulate", str(scenario())]
    done = subprocess.run(
        [*command, option, str(folder / name)],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: {folder / name}: ")
    assert "cannot be written (File too large)" in last
    assert "Traceback" not in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_sizes_have_a_page_of_cost_against_time(run, tmp_path):
    page = tmp_path / "sizes.html"
    asked = (
        "plan size --tokens 1T --days 60 --model llama3.1-8b --cluster dgx-h100 --gpus 16..64 --seq-len 8k"
    )
    ran = run(*asked.split(), "--global-batch", "128", "--html", str(page))
    assert ran.code == 0, ran.err
    text = page.read_text(encoding="utf-8")
    assert "Cost against time" in text and "16 GPUs" not in text.partition("<h2>")[2][:200]
    assert page.stat().st_size < 1.5e6
