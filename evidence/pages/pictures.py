"""The pictures of docs/pictures: pages of small questions, drawn by a browser.

    python -m benchmarks.pictures [NAME ...]

Needs Chromium (`apt-get install chromium`). Each page is written by the command that docs/pictures.md names.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from core.errors import InputError, named
from evidence.command import command

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
BROWSERS = ("chromium", "google-chrome", "chromium-browser")
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
DRAWN_MS = 8000
"""Time that a page has to draw its charts."""


@dataclass(frozen=True)
class Picture:
    """One page.

    Attributes:
        words: of the command, without ``--html``.
        what: caption.
        height: of the picture, px; its width is 1,200.
    """

    words: str
    what: str
    height: int


TRAINED = "--model llama3.1-8b --cluster dgx-h100 --gpus 64 --seq-len 8k --global-batch 128"
PICTURES = {
    "plan": Picture(f"plan train {TRAINED}", "Ranked plans, their steps and memory, and the explorer", 2150),
    "step": Picture(
        "simulate llama3-8b-64-h100 --engine", "One step on the event engine, lane by lane", 1500
    ),
    "serving": Picture("simulate serve-llama3-70b", "Requests through a deployment", 1500),
    "front": Picture(f"plan train {TRAINED} --pareto", "Pareto fronts: step time, memory, energy", 1150),
}
"""Pictures by name."""


def draw(name: str, browser: str) -> Path:
    """Write the page of a picture and draw it."""
    picture, path = PICTURES[name], FOLDER / f"{name}.png"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        command = [sys.executable, "-m", "meshwright", *picture.words.split(), "--html", str(page)]
        subprocess.run(command, check=True, capture_output=True)
        drawn = [
            browser,
            *SWITCHES,
            f"--user-data-dir={folder}/profile",
            f"--window-size=1200,{picture.height}",
        ]
        drawn += [f"--virtual-time-budget={DRAWN_MS}", f"--screenshot={path}", f"file://{page}"]
        subprocess.run(drawn, check=True, capture_output=True, timeout=120)
    return path


def index() -> str:
    """The page that shows all pictures with their commands."""
    parts = ["# Pictures\n\nPages of four commands, drawn by `python -m benchmarks.pictures`.\n"]
    for name, picture in PICTURES.items():
        parts.append(
            f"## {picture.what}\n\n```sh\nmeshwright {picture.words} --html {name}.html\n```\n\n"
            f"![{picture.what}](pictures/{name}.png)\n"
        )
    return "\n".join(parts)


@command
def main(names: Annotated[Sequence[str], ", ".join(PICTURES)] = ()) -> None:
    """Draw the pictures, and write docs/pictures.md."""
    for name in names:
        named("picture", name, PICTURES)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise InputError("no browser: apt-get install chromium")
    for name in names or PICTURES:
        print(draw(name, browser), flush=True)
    FOLDER.with_suffix(".md").write_text(index(), encoding="utf-8")
