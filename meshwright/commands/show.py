"""``meshwright show``: entries of the catalogues."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshwright.commands.output import Json


def show(
    kind: Annotated[
        str,
        typer.Argument(
            help="devices, clusters, links, models, towers, diffusion-models, diffusion-libraries, "
            "recommendation-models, tables-libraries, frameworks, recipes, offload, schedules, engines, "
            "schedulers, routers, migrations, kv, scalers, power-policies, traces, algorithms, rl-schedules, "
            "rl-frameworks, weight-transfers, samplers or scenarios"
        ),
    ],
    name: Annotated[str, typer.Argument(help="Entry: name, part of a name, or path.")] = "",
    graph: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Clusters: draw the topology as FILE.html, or write FILE.graphml."),
    ] = None,
    json: Json = False,
) -> None:
    """Show entries of the catalogues, with sources.

    A device's entry lists the calibration of every kernel, and its error on held-out shapes.

    [bold]Example:[/bold] meshwright show devices h100-sxm
    """
    from meshwright.commands.output import print_json, show_tables
    from meshwright.reports.catalogues import describe, list_all

    if graph is not None:
        _write_graph(kind, name, graph)
        return
    report, tables = describe(kind, name) if name else list_all(kind)
    print_json(report) if json else show_tables(*tables)


def _write_graph(kind: str, name: str, path: Path) -> None:
    """Draw a cluster.

    Raises:
        InputError: another kind of entry, no name, or the file cannot be written.
    """
    from core.errors import InputError
    from hwmodels.cluster import clusters
    from meshwright.commands.output import note
    from meshwright.pages.topology import write_topology

    if kind != "clusters" or not name:
        raise InputError("draws one cluster: meshwright show clusters NAME --graph FILE.html", "--graph")
    write_topology(path, clusters.get(name))
    note(f"graph written: {path}")
