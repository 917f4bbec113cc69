"""``meshwright calibrate``: a device whose kernel times come from measured points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.commands.options import needs_plotly
from meshwright.commands.output import Json

if TYPE_CHECKING:
    from hwmodels.device import Device


def calibrate(
    points: Annotated[list[Path], typer.Argument(help="Point files, or folders of them.")],
    device: Annotated[str, typer.Option(help="What was measured: a name, a YAML file, or cpu.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Device YAML to write.")],
    gpu: Annotated[str, typer.Option(help="What the points call it; default: the device's name.")] = "",
    share: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of the shapes kept out to state the error on.")
    ] = 0.15,
    page: Annotated[
        Path | None,
        typer.Option(
            callback=needs_plotly, help="HTML page to draw: predicted against measured on shapes kept out."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Write the device even if its errors are large.")
    ] = False,
    json: Json = False,
) -> None:
    """Fit a device's kernel times to measured points, and say how wrong they are on shapes kept out.

    Every other command takes the device YAML by its path. What the points do not cover stays as it was.

    [bold]Example:[/bold] meshwright calibrate points --device h100-sxm -o my-h100.yaml
    """
    from hwmodels.errors import InputError
    from hwmodels.files import written_together
    from meshwright.commands.output import note, print_json, show_tables
    from meshwright.reports import calibration as report
    from profiles.fitting import calibrate as fit_points

    measured = _described(device, points)
    fit = fit_points(points, measured, gpu=gpu, share=share, say=note)
    for line in report.doubts(fit):
        note(f"warning: {line}")
    if not yes and (poor := report.refusal(fit)):
        raise InputError(poor)
    with written_together():
        written = report.write_device(fit, measured, out)
        if page is not None:
            from meshwright.pages.calibration import write_calibration

            write_calibration(page, fit, measured.name)
            written.append(page)
    print_json(report.as_json(fit, written)) if json else show_tables(*report.as_tables(fit, written))


def _described(device: str, points: list[Path]) -> Device:
    """The device from the catalogue or a file; a CPU from its measured points."""
    from hwmodels.device import devices
    from profiles.observed import observed_device

    if device != "cpu":
        return devices.get(device, "--device")
    folder = next((path for path in points if path.is_dir()), points[0].parent)
    return observed_device(folder)
