"""Pages of deployments, mixes, days and sweeps: one chart, and the tables that the command prints."""

from __future__ import annotations

import json
import re

import pytest

LOAD = ("--model", "llama3.1-8b", "--isl", "1000", "--osl", "100", "--ttft", "1", "--tpot", "0.05")
ASKED = {
    "serve": ("plan", "serve", *LOAD, "--cluster", "dgx-h100", "--gpus", "2", "--rate", "5"),
    "mix": ("plan", "mix", "--types", "l4,h100-sxm", *LOAD, "--rate", "5"),
    "day": ("plan", "day", "--rates", "2,50", *LOAD, "--cluster", "dgx-h100", "--gpus", "8"),
    "sweep": ("sweep", "sizes-llama3-8b", "--workers", "1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_a_page_has_a_chart_and_the_tables(run, tmp_path, name):
    path = tmp_path / "page.html"
    asked = run(*ASKED[name], "--html", str(path))
    assert asked.code == 0, asked.err
    page = path.read_text(encoding="utf-8")
    figure = json.loads(re.findall(r'id="figure-\d">(.*?)</script>', page)[0])
    drawn = figure["data"][0]
    assert len(drawn["x"]) == len(drawn["y"]) > 0
    assert page.count("<table>") >= 1
    assert len(page) < 1.5e6


def test_each_point_of_a_sweep_is_a_row(run, tmp_path):
    path = tmp_path / "page.html"
    points = json.loads(run(*ASKED["sweep"], "--html", str(path), "--json").out)["points"]
    body = path.read_text(encoding="utf-8").partition("<tbody>")[2]
    assert body.partition("</tbody>")[0].count("<tr>") == len(points)


def test_each_deployment_is_a_line_over_its_loads(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    path = tmp_path / "page.html"
    run(*ASKED["serve"], "--html", str(path))
    page = path.read_text(encoding="utf-8")
    *lines, points = json.loads(re.findall(r'id="figure-\d">(.*?)</script>', page)[0])["data"]
    assert len(lines) == len(points["x"]) > 1
    for line in lines:
        assert line["y"] == sorted(line["y"])
        assert line["x"][0] > line["x"][-1], "a loaded server is slower for each user"
    assert "on 2027-01-15" in page
