"""The explorer of scored plans: compact data, and clicks in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64decode

import numpy as np
import pytest

from meshwright import plan
from meshwright.pages.explorer import AS_RELEASED, MOST_PLANS, explorer_data
from planner.training.constraints import Constraints

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def found():
    return plan(model="llama3.1-8b", cluster="dgx-h100", gpus=64, seq_len="8k", global_batch=128, every=True)


@pytest.fixture(scope="module")
def page(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "plan.html"
    found.save(path)
    return path


def test_data_are_compact(found, page):
    setting = found.result.setting
    prediction = next(found.scored.predictions(setting))
    data, plans = explorer_data(prediction, setting), min(len(found.scored), MOST_PLANS)
    assert data["count"] == plans > 1000
    assert len(json.dumps(data)) < 60 * plans  # 5,000 plans: under 0.3 MB
    step = data["values"][0]
    told = step["low"] + step["step"] * np.frombuffer(b64decode(step["numbers"]), "<u2")
    assert told == pytest.approx(prediction.metrics.step_time_s[:plans], rel=1e-4)
    assert (np.diff(told) >= 0).all()
    assert page.stat().st_size < 1.5e6


def test_parts_of_a_step_add_up(found):
    setting = found.result.setting
    data = explorer_data(next(found.scored.predictions(setting)), setting)
    columns = [b64decode(part["values"]) for part in data["parts"]]
    for row in range(0, data["count"], 97):
        assert abs(sum(column[row] for column in columns) - 255) <= len(columns)


NOTE = """
const note = (name, text) => {
  const made = document.createElement("pre");
  Object.assign(made, {id: name, textContent: text});
  document.body.append(made);
};
"""


def in_browser(page, script, width=1400):
    """The page's DOM after a script has run in it."""
    script = f"{NOTE}{script}"
    changed = page.with_name("clicked.html")
    changed.write_text(
        page.read_text(encoding="utf-8").replace("</body>", f"<script>{script}</script></body>")
    )
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    switches += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    switches += [f"--user-data-dir={page.parent / 'profile'}", f"--window-size={width},2000"]
    command = [CHROMIUM, *switches, "--virtual-time-budget=8000", "--dump-dom", f"file://{changed}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


CLICKS = """
{
const text = (id) => document.getElementById(id).textContent;
note("first", text("explorer-command"));
document.getElementById("explorer-scatter").emit("plotly_click", {points: [{customdata: 40}]});
note("clicked", text("explorer-command"));
document.querySelector("#explorer-neighbours tr").click();
note("neighbour", text("explorer-command"));
const filter = document.querySelector("#explorer-filters select");
filter.value = "0"; filter.dispatchEvent(new Event("change"));
note("kept", text("explorer-count"));
note("bars", document.querySelectorAll("#explorer-parts .part").length);
note("lines", document.querySelectorAll("#explorer-lines .plan").length);
}
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_clicks_show_a_plan_and_its_neighbours(page):
    dom = in_browser(page, CLICKS)
    told = dict(re.findall(r'<pre id="(\w+)">(.*?)</pre>', dom, re.S))
    assert told["first"].startswith("meshwright plan train --model llama3.1-8b")
    assert len({told["first"], told["clicked"], told["neighbour"]}) == 3
    one, other = (set(told[name].split("--fix")) for name in ("clicked", "neighbour"))
    assert 1 <= len(one - other) <= 2
    kept, total = map(int, re.findall(r"\d+", told["kept"].replace(",", "")))
    assert 0 < kept < total
    assert int(told["bars"]) > 2 and int(told["lines"]) > 10


FAULTS = """
const faults = [];
for (const chart of document.querySelectorAll("[data-figure]")) {
  const plot = chart.querySelector(".cartesianlayer .plot, .bglayer");
  const legend = chart.querySelector(".legend");
  if (chart.getBoundingClientRect().width > innerWidth) faults.push("a chart is wider than the page");
  if (!plot || !legend) continue;
  const box = plot.getBoundingClientRect(), other = legend.getBoundingClientRect();
  if (box.height < 60) faults.push("a plot is " + box.height + " px high");
  if (other.top < box.bottom - 2 && other.bottom > box.top + 2) faults.push("a legend covers its plot");
}
for (const table of document.querySelectorAll("section .wide table")) {
  const box = table.parentElement, sign = box.nextElementSibling;
  const told = sign && sign.className === "swipe" && getComputedStyle(sign).display !== "none";
  const cut = box.scrollWidth > box.clientWidth + 4 && innerWidth < 700;
  if (cut && !told) faults.push("a table is cut without a sign");
}
if (document.documentElement.scrollWidth > innerWidth + 4) faults.push("the page scrolls sideways");
note("faults", JSON.stringify(faults));
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
@pytest.mark.parametrize("width", [500, 1400])
def test_charts_and_tables_fit_the_width(page, width):
    dom = in_browser(page, f"setTimeout(() => {{{FAULTS}}}, 2000)", width)
    assert json.loads(re.search(r'<pre id="faults">(.*?)</pre>', dom, re.S)[1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama3.1-8b", "qwen3-30b-a3b"])
def test_the_command_of_a_plan_takes_every_word_of_its_fields(model):
    searched = plan(model=model, cluster="dgx-h100", gpus=64, seq_len="4k", global_batch=128, every=True)
    setting = searched.result.setting
    fields = explorer_data(next(searched.scored.predictions(setting)), setting)["fields"]
    stated = [(field["name"], word) for field in fields if not field["follows"] for word in field["words"]]
    assert ("graphs", AS_RELEASED) in stated
    for name, word in stated:
        if word != AS_RELEASED:
            assert name in Constraints.of({name: word}).fixed
