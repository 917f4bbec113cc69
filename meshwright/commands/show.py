"""``meshwright show``: entries of the catalogues."""

from __future__ import annotations

from typing import Annotated

import typer

from meshwright.commands.output import Json


def show(
    kind: Annotated[
        str,
        typer.Argument(
            help="devices, clusters, links, models, frameworks, recipes, schedules, engines, schedulers, "
            "routers, scalers, traces or scenarios"
        ),
    ],
    name: Annotated[str, typer.Argument(help="One of them, or a path.")] = "",
    json: Json = False,
) -> None:
    """Show entries of the catalogues, with sources.

    For devices: how each kernel is calibrated, and its error on shapes that the fit did not see.

    [bold]Example:[/bold] meshwright show devices h100-sxm
    """
    from meshwright.commands.output import print_json, show_tables
    from meshwright.reports.catalogues import describe, list_all

    report, tables = describe(kind, name) if name else list_all(kind)
    print_json(report) if json else show_tables(*tables)
