"""``meshwright show``: entries of the catalogues."""

from __future__ import annotations

from typing import Annotated

import typer

from meshwright.commands.output import Json


def show(
    kind: Annotated[
        str,
        typer.Argument(
            help="devices, clusters, links, models, frameworks, recipes, offload, schedules, engines, "
            "schedulers, routers, scalers, power-policies, traces or scenarios"
        ),
    ],
    name: Annotated[str, typer.Argument(help="Entry: name or path.")] = "",
    json: Json = False,
) -> None:
    """Show entries of the catalogues, with sources.

    A device's entry lists the calibration of every kernel, and its error on held-out shapes.

    [bold]Example:[/bold] meshwright show devices h100-sxm
    """
    from meshwright.commands.output import print_json, show_tables
    from meshwright.reports.catalogues import describe, list_all

    report, tables = describe(kind, name) if name else list_all(kind)
    print_json(report) if json else show_tables(*tables)
