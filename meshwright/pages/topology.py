"""The topology of a cluster as an HTML page, or as GraphML for tools that draw graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InputError
from core.files import atomic_write
from hwmodels.cluster import Cluster
from meshwright.pages.page import Figure, Page, Section, figure_of, label
from meshwright.reports.units import scaled, seconds

if TYPE_CHECKING:
    import networkx as nx

MOST_DEVICES = 4096
"""Devices of a graph; each is a node of it."""
DRAWN_NODES = (2, 1)
"""Nodes below the first and the second leaf that a page draws."""
COLOURS = ("#2c6fbb", "#2aa198", "#e9a23b", "#c8374a", "#6a51a3")


def write_topology(path: Path, cluster: Cluster) -> None:
    """Write a page of a few nodes with their links, or up to ``MOST_DEVICES`` as GraphML, by the suffix.

    Raises:
        InputError: another suffix, or the file cannot be written.
    """
    if path.suffix == ".graphml":
        _write_graphml(path, cluster)
    elif path.suffix == ".html":
        _page(cluster).write(path)
    else:
        raise InputError(f"a graph is FILE.html or FILE.graphml, found {path.name!r}", "--graph")


def _write_graphml(path: Path, cluster: Cluster) -> None:
    import networkx as nx

    full_nodes = MOST_DEVICES - MOST_DEVICES % cluster.devices_per_node
    graph = cluster.resized(min(cluster.nodes * cluster.devices_per_node, full_nodes)).topology.graph()
    named = nx.relabel_nodes(graph, {place: _name(place) for place in graph})
    with atomic_write(path) as temporary:
        nx.write_graphml(named, temporary)


def _page(cluster: Cluster) -> Page:
    network, per_node = cluster.network, cluster.devices_per_node
    nodes = min(network.nodes_per_leaf + DRAWN_NODES[1], cluster.nodes)
    graph = cluster.resized(min(nodes * per_node, MOST_DEVICES)).topology.graph()
    second = range(network.nodes_per_leaf, network.nodes_per_leaf + DRAWN_NODES[1])
    visible = {*range(min(DRAWN_NODES[0], network.nodes_per_leaf)), *second}
    drawn = _part(graph, visible, per_node)
    levels = {
        level.name: f"{scaled(level.bandwidth, 'B/s')}, {seconds(level.latency)}" for level in cluster.levels
    }
    facts = {"devices": f"{cluster.devices:,} {cluster.device.name}", "nodes": f"{cluster.nodes:,}"}
    facts |= {**levels, "NIC": f"{network.nic_gbps:g} Gb/s x {network.nics_per_node}"}
    shape = f"{network.shape}, {network.nodes_per_leaf:,} nodes a leaf, 1:{network.oversubscription:g}"
    words = (
        f"{len(visible)} nodes of {cluster.nodes:,}; the network is {shape}. Point at a link for its rate."
    )
    return Page(f"Topology of {cluster.name}", facts, [Section("Links", words, _figure(drawn, cluster))])


def _part(graph: nx.Graph, nodes: set[int], per_node: int) -> nx.Graph:
    """The devices and NICs of some nodes, the switches that they reach, and the spine."""
    ends = {place for place in graph if place[0] == "device" and place[1] // per_node in nodes}
    ends |= {place for place in graph if place[0] == "nic" and place[1] in nodes}
    switches = {other for place in ends for other in graph.neighbors(place) if other[0] != "device"}
    spine = {place for place in graph if place[0] == "spine"}
    return graph.subgraph(ends | switches | spine)


def _figure(graph: nx.Graph, cluster: Cluster) -> Figure:
    """Devices below, then switches of levels, NICs, leaves and the spine; links as lines."""
    rows = ["device", *(level.name for level in cluster.levels), "nic", "leaf", "spine"]
    by_row = {row: sorted(place for place in graph if place[0] == row) for row in rows}
    by_row = {row: places for row, places in by_row.items() if places}
    spots: dict[Any, tuple[float, float]] = {}
    for height, places in enumerate(by_row.values()):
        for index, place in enumerate(places):
            spots[place] = ((index + 0.5) / len(places), float(height))
    lines: dict[str, dict[str, Any]] = {}
    for first, other, link in graph.edges(data=True):
        words = f"{link['level']}: {scaled(link['bandwidth'], 'B/s')} each way"
        line = lines.setdefault(words, {"x": [], "y": []})
        line["x"] += [spots[first][0], spots[other][0], None]
        line["y"] += [spots[first][1], spots[other][1], None]
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "name": label(words), "hoverinfo": "name", **line}
        | {"line": {"width": 1.2, "color": COLOURS[index % len(COLOURS)]}}
        for index, (words, line) in enumerate(lines.items())
    ]
    for row, places in by_row.items():
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(row),
                "showlegend": False,
                "x": [spots[place][0] for place in places],
                "y": [spots[place][1] for place in places],
                "text": [_name(place) for place in places],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {
                    "size": 11,
                    "symbol": "square" if row == "device" else "circle",
                    "color": "#7b8794",
                },
            }
        )
    heights = list(range(len(by_row)))
    axes = {
        "xaxis": {"visible": False},
        "yaxis": {"tickvals": heights, "ticktext": list(by_row), "showgrid": False, "zeroline": False},
    }
    below = {"orientation": "h", "x": 0, "y": -0.05, "yanchor": "top", "traceorder": "normal"}
    return figure_of(data, height=460, hovermode="closest", legend=below, **axes)


def _name(place: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in place)
