"""`meshwright calibrate`: from point files to a device that other commands take by path."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from hwmodels.device import devices
from profiles import points

RATIO = 1.3
"""What the made-up device takes over the catalogue's."""


def write_points(folder):
    """Points of a device that is slower than the catalogue's H100 by a constant ratio, in products only."""
    generator = np.random.default_rng(1)
    shapes = 2 ** generator.uniform(7, 13, size=(40, 3))
    m, n, k = np.rint(shapes / 64).astype(int).clip(1).T * 64
    seconds = RATIO * devices.get("h100-sxm").kernels.gemm(m, n, k)
    identity = {"gpu": "h100-sxm", "dtype": "bf16", "layout": "forward", "source": "made up"}
    rows = [
        {**identity, "m": int(a), "n": int(b), "k": int(c), "time_us": 1e6 * float(s)}
        for a, b, c, s in zip(m, n, k, seconds, strict=True)
    ]
    points.write(folder / "gemm.csv", points.TABLES["gemm"], rows)
    return folder


@pytest.fixture
def measured(tmp_path):
    return write_points(tmp_path / "points")


@pytest.fixture(scope="module")
def calibrated(run, tmp_path_factory):
    """A folder with a calibrated device ``mine.yaml``, its ``page.html`` and the ``report.json``."""
    folder = tmp_path_factory.mktemp("calibrated")
    measured, out, page = write_points(folder / "points"), folder / "mine.yaml", folder / "page.html"
    ran = run(
        "calibrate", str(measured), "--device", "h100-sxm", "-o", str(out), "--page", str(page), "--json"
    )
    assert ran.code == 0, ran.err
    (folder / "report.json").write_text(ran.out, encoding="utf-8")
    return folder


def keep_points(folder, count):
    """Cut a folder's products to the first few."""
    lines = (folder / "gemm.csv").read_text(encoding="utf-8").splitlines()[: count + 1]
    (folder / "gemm.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_a_calibrated_device_predicts_what_was_measured_and_is_taken_by_path(run, calibrated):
    out, page = calibrated / "mine.yaml", calibrated / "page.html"
    report = json.loads((calibrated / "report.json").read_text(encoding="utf-8"))
    assert str(out) in report["files"]
    (entry,) = report["entries"]
    assert (entry["operation"], entry["dtype"], entry["points"]) == ("gemm", "bf16", 40)
    assert entry["error"]["median"] < 0.15

    shown = json.loads(run("show", "devices", str(out), "--json").out)["device"]
    status = {(kernel["operation"], kernel["dtype"]): kernel["status"] for kernel in shown["kernels"]}
    assert status["gemm", "bf16"] == "measured"
    assert status["gemm", "fp8"] != "measured"

    shipped, own = devices.get("h100-sxm").kernels, devices.get(out).kernels
    ratio = own.gemm(4096, 4096, 4096) / shipped.gemm(4096, 4096, 4096)
    assert ratio == pytest.approx(RATIO, rel=0.1)

    text = page.read_text(encoding="utf-8")
    assert "gemm bf16" in text
    assert "https://cdn" not in text.split("</script>")[0]


def test_the_table_says_how_wrong_the_fit_is_and_what_was_written(run, tmp_path, measured):
    keep_points(measured, 12)
    out = run("calibrate", str(measured), "--device", "h100-sxm", "-o", str(tmp_path / "mine.yaml")).out
    assert "shapes kept out" in out
    assert "mine.yaml" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "h100-sxn"], ["--device", "unknown device", "'h100-sxm'"]),
        (["--device", "a100-sxm-80gb", "--gpu", "a100"], ["nothing to fit", "h100-sxm"]),
    ],
)
def test_what_cannot_be_fitted_is_said_and_nothing_is_written(refused, tmp_path, measured, arguments, words):
    out = tmp_path / "mine.yaml"
    message = refused("calibrate", str(measured), *arguments, "-o", str(out))
    for word in words:
        assert word in message
    assert not out.exists()


def test_too_few_points_are_counted(refused, tmp_path, measured):
    keep_points(measured, 3)
    message = refused("calibrate", str(measured), "--device", "h100-sxm", "-o", str(tmp_path / "mine.yaml"))
    assert "gemm in bf16: 3 points" in message


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("time_us", "time_ms", ["line 1", "microseconds", "time_us"]),
        ("dtype", "dtyp", ["line 1", "dtyp", "'dtype'"]),
        ("bf16,forward", "bf16,sideways", ["line 2", "layout", "sideways"]),
    ],
)
def test_a_wrong_point_file_names_line_and_column(refused, tmp_path, measured, old, new, words):
    path = measured / "gemm.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    message = refused("calibrate", str(measured), "--device", "h100-sxm", "-o", str(tmp_path / "mine.yaml"))
    for word in [str(path), *words]:
        assert word in message


def test_kernels_are_validated_against_points(run, measured):
    report = json.loads(run("validate", "--kernels", str(measured), "--json").out)
    (row,) = report["kernels"]
    assert (row["operation"], row["gpu"], row["dtype"], row["points"]) == ("gemm", "h100-sxm", "bf16", 40)
    assert row["median_error"] == pytest.approx(1 - 1 / RATIO, abs=0.05)
    assert "gemm" in run("validate", "--kernels", str(measured)).out


def test_validating_kernels_needs_points(refused, tmp_path):
    refused("validate", "--kernels", str(tmp_path / "nowhere"))
    refused("validate", "--kernels", str(tmp_path), "--cases", "cases.csv")


@pytest.mark.parametrize(("suffix", "reads"), [(".yaml", 1), (".calibration.yaml", 2)])
def test_a_device_of_another_version_is_one_message(refused, tmp_path, calibrated, suffix, reads):
    out = Path(shutil.copytree(calibrated, tmp_path / "copy")) / "mine.yaml"
    path = out.with_suffix(suffix)
    path.write_text(path.read_text().replace(f"format: {reads}\n", "format: 99\nunknown_key: 1\n"))
    message = refused("show", "devices", str(out))
    assert str(path) in message
    assert f"another version of Meshwright (format 99, this one reads {reads})" in message
    assert "meshwright calibrate" in message
    assert "unknown_key" not in message


def test_points_that_call_their_device_otherwise_are_taken_and_said(run, tmp_path, measured):
    keep_points(measured, 12)
    table = measured / "gemm.csv"
    table.write_text(table.read_text().replace("h100-sxm", "hopper"))
    ran = run("calibrate", str(measured), "--device", "h100-sxm", "-o", str(tmp_path / "mine.yaml"))
    assert ran.code == 0
    assert "gemm: the points are of 'hopper'; they are taken as h100-sxm" in ran.err


def test_the_page_has_a_panel_and_a_row_for_each_kernel(calibrated):
    text = (calibrated / "page.html").read_text(encoding="utf-8")
    figure = json.loads(re.search(r'id="figure-0-0">(.*?)</script>', text, re.DOTALL).group(1))
    line, *dots = figure["data"]
    assert line["x"] == line["y"]
    assert {trace["name"] for trace in dots} <= {"form alone", "with points"}
    assert figure["layout"]["title"]["text"].split(":")[0] == "gemm bf16"
    assert "<td" in text


def test_errors_of_too_few_points_are_not_made_up(run, tmp_path, measured):
    rows = [
        {"gpu": "h100-sxm", "dtype": "bf16", "op": "copy", "dims": "1", "source": "made up"}
        | {"tokens": tokens, "bytes_per_token": 65536.0, "time_us": tokens / 20}
        for tokens in (1024, 65536)
    ]
    keep_points(measured, 12)
    points.write(measured / "elementwise.csv", points.TABLES["elementwise"], rows)
    ran = run("calibrate", str(measured), "--device", "h100-sxm", "-o", str(tmp_path / "mine.yaml"))
    assert "too few" in next(line for line in ran.out.splitlines() if "copy" in line)
    assert "too few" in run("show", "devices", str(tmp_path / "mine.yaml")).out


def test_without_its_page_no_device_is_written(tmp_path, measured, run):
    keep_points(measured, 12)
    (tmp_path / "file").write_text("no folder")
    out, page = tmp_path / "out" / "mine.yaml", tmp_path / "file" / "page.html"
    ran = run("calibrate", str(measured), "--device", "h100-sxm", "-o", str(out), "--page", str(page))
    assert ran.code == 2
    assert not out.parent.exists()


@pytest.mark.slow
def test_a_fit_of_points_that_scatter_is_refused_unless_asked_for(run, tmp_path, measured):
    path = measured / "gemm.csv"
    heading, *lines = path.read_text(encoding="utf-8").splitlines()
    generator = np.random.default_rng(2)
    place = heading.split(",").index("time_us")
    for index, line in enumerate(lines):
        cells = line.split(",")
        cells[place] = f"{float(cells[place]) * 10 ** generator.uniform(0, 2):.5g}"
        lines[index] = ",".join(cells)
    path.write_text("\n".join([heading, *lines, ""]), encoding="utf-8")
    out = tmp_path / "out" / "mine.yaml"
    asked = ["calibrate", str(measured), "--device", "h100-sxm", "-o", str(out)]
    ran = run(*asked)
    assert ran.code == 2
    assert "measure again" in ran.err
    assert not out.parent.exists()
    assert run(*asked, "--yes").code == 0
    assert out.exists()
