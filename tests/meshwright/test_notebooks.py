"""The notebooks of the documentation run, and results show their tables in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted(Path("docs/notebooks").glob("*.ipynb"))


def test_there_are_two():
    assert len(NOTEBOOKS) == 2


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_tables_are_shown_once_and_as_html(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert outputs
    # A table that rich displays by itself would stand beside the result's own.
    assert not [output for output in outputs if output["output_type"] == "display_data"]
    assert any("<pre" in "".join(output.get("data", {}).get("text/html", "")) for output in outputs)
