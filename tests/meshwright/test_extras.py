"""Without the libraries of calibrations and mixes, everything else works and they are refused at once."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = {"scipy": "calibrate"}


@pytest.fixture
def plain(monkeypatch):
    """An installation without the extras."""
    for name in EXTRAS:
        monkeypatch.setitem(sys.modules, name, None)


def test_only_extras_have_scipy():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, extra in EXTRAS.items():
        assert not any(needed.startswith(name) for needed in project["dependencies"])
        for group in (extra, "test"):
            assert any(needed.startswith(name) for needed in project["optional-dependencies"][group])


def test_calibrations_are_refused(plain, refused, tmp_path):
    rows = [
        f"a100-sxm-80gb,bf16,forward,{m},{n},512,{m * n * 512 / 1e8 + 5:.5g},0.02,lab"
        for m in (256, 1024, 4096)
        for n in (256, 512, 1024, 2048)
    ]
    text = "\n".join(["gpu,dtype,layout,m,n,k,time_us,spread,source", *rows, ""])
    (tmp_path / "gemm.csv").write_text(text, encoding="utf-8")
    out = tmp_path / "mine.yaml"
    message = refused("calibrate", str(tmp_path), "--device", "a100-sxm-80gb", "-o", str(out))
    assert "pip install '.[calibrate]'" in message
    assert not out.exists()


def test_mixes_without_a_solver_are_refused_before_the_search(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "pulp", None)
    # No type serves the model: the search would say so.
    words = "plan mix --model deepseek-v3 --isl 500 --osl 150 --rate 10 --tpot 0.1 --types l4=1,a10g=1"
    assert "pip install '.[mix]'" in refused(*words.split())


@pytest.mark.slow
def test_planning_simulating_and_pages_need_no_extra(tmp_path):
    script = (
        "import sys\n"
        "sys.modules.update(scipy=None, pulp=None, torch=None)\n"
        "from meshwright.__main__ import app\n"
        "app(sys.argv[1:])"
    )
    for command in (
        ["simulate", "llama3-8b-64-h100", "--html", str(tmp_path / "step.html")],
        ["validate", "--summary", "--help"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, *command], capture_output=True, text=True, cwd=ROOT, check=False
        )
        assert done.returncode == 0, done.stderr
