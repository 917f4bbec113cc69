"""Size of an installation: run with ``python -m benchmarks.install [EXTRA ...]``.

Installs this checkout in a new virtual environment, and prints the megabytes that its packages take beyond
those of the empty environment. Needs a package index.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from evidence.command import command

ROOT = Path(__file__).parents[1]
MEGABYTE = 1e6
SHOWN = 12


def sizes(environment: Path) -> dict[str, int]:
    """Bytes by top folder of site-packages."""
    (packages,) = environment.glob("lib/python*/site-packages")
    return {
        entry.name: sum(
            path.stat().st_size
            for path in (entry.rglob("*") if entry.is_dir() else (entry,))
            if path.is_file()
        )
        for entry in packages.iterdir()
    }


@command
def main(*extras: str) -> None:
    with TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        venv.create(environment, with_pip=True)
        before = sizes(environment)
        package = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
        install = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", package]
        subprocess.run(install, check=True)
        after = {name: size for name, size in sizes(environment).items() if name not in before}
    for name, size in sorted(after.items(), key=lambda item: -item[1])[:SHOWN]:
        print(f"{name:24} {size / MEGABYTE:7.1f} MB")
    print(
        f"{'all ' + str(len(after)):24} {sum(after.values()) / MEGABYTE:7.1f} MB beyond an empty environment"
    )
