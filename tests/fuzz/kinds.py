"""All kinds of broken inputs: for each a function from a random generator to files and a command line.

A new kind is one entry of ``KINDS`` in a module of kinds; `from_data` makes one of a mapping and the commands
that read it.
"""

from __future__ import annotations

from tests.fuzz import command_lines, importers, launch, measured, runs, serving, training
from tests.fuzz.case import Kind

KINDS: dict[str, Kind] = {
    **training.KINDS,
    **serving.KINDS,
    **runs.KINDS,
    **command_lines.KINDS,
    **launch.KINDS,
    **importers.KINDS,
    **measured.KINDS,
}
