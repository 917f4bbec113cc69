"""``meshwright calibrate``: a device whose kernel times come from measured points."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.commands.output import Json

if TYPE_CHECKING:
    from hwmodels.device import Device


def calibrate(
    points: Annotated[list[Path], typer.Argument(help="Point files, or folders of them.")],
    device: Annotated[str, typer.Option(help="Measured device: name, YAML file, or cpu.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Write the calibrated device to this YAML file.")],
    gpu: Annotated[
        str, typer.Option(help="Device name in the point files; default: the name of --device.")
    ] = "",
    share: Annotated[
        float,
        typer.Option(min=0.01, max=0.9, help="Share of shapes held out of the fit, to measure its error."),
    ] = 0.15,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Write an HTML page: predicted against measured times of held-out shapes.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write the device in spite of large errors.")] = False,
    json: Json = False,
) -> None:
    """Fit a device's kernel times to measured points, and report the errors on held-out shapes.

    All commands take the device YAML by its path. Kernels without points keep their calibration.

    [bold]Example:[/bold] meshwright calibrate points --device h100-sxm -o my-h100.yaml
    """
    from core.errors import InputError
    from core.files import written_together
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
            from meshwright.pages.calibration import calibration_page

            calibration_page(fit, measured.name).write(page)
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
