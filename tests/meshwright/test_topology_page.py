"""The topology of a cluster, drawn and as GraphML."""

from __future__ import annotations

import json
import re

import networkx as nx
import pytest

from hwmodels.cluster import clusters


@pytest.mark.parametrize("name", ["dgx-h100", "gb200-nvl72", "frontier", "l40s-8", "gh200-node"])
def test_every_drawn_link_joins_two_drawn_places(run, tmp_path, name):
    path = tmp_path / "graph.html"
    asked = run("show", "clusters", name, "--graph", str(path))
    assert asked.code == 0, asked.err
    figure = json.loads(re.findall(r'id="figure-0">(.*?)</script>', path.read_text(encoding="utf-8"))[0])
    places = {
        (x, y)
        for trace in figure["data"]
        if trace["mode"] == "markers"
        for x, y in zip(trace["x"], trace["y"], strict=True)
    }
    ends = [
        (x, y)
        for trace in figure["data"]
        if trace["mode"] == "lines"
        for x, y in zip(trace["x"], trace["y"], strict=True)
        if x is not None
    ]
    assert {*ends} == places


def test_graphml_holds_every_device(run, tmp_path):
    path = tmp_path / "graph.graphml"
    assert run("show", "clusters", "jean-zay-a100", "--graph", str(path)).code == 0
    read, cluster = nx.read_graphml(path), clusters.get("jean-zay-a100")
    devices = [place for place, kind in read.nodes(data="kind") if kind == "device"]
    assert len(devices) == cluster.nodes * cluster.devices_per_node
    assert nx.is_connected(read)
