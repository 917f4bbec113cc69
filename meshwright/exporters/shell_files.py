"""What a script brings beside its commands: files that it writes itself, and SLURM's directives."""

from __future__ import annotations

import re
from typing import NamedTuple

HERE = re.compile(r"<<(?P<dash>-?)\s*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")
"""The start of a here-document."""
TARGET = re.compile(r"(?:(?<![0-9&>])>\s*|\btee\s+)([^\s|&;<>]+)")
DIRECTIVE = re.compile(r"(?m)^#SBATCH\s+(--?[\w-]+)(?:=|\s+)(\S+)")
MOST_FILES = 50


class HereDocument(NamedTuple):
    """A file that a script writes from its own text."""

    name: str
    """As the script spells it."""
    text: str
    literal: bool
    """Whether variables in it stay as they are."""


def without_files(text: str) -> tuple[str, list[HereDocument]]:
    """The script without its here-documents, and those that it writes to a file."""
    lines, files = text.split("\n"), []
    rest: list[str] = []
    index = 0
    while index < len(lines):
        line, index = lines[index], index + 1
        begun = HERE.search(line) if not line.lstrip().startswith("#") else None
        if begun is None or "<<<" in line:
            rest.append(line)
            continue
        end = next(
            (i for i in range(index, len(lines)) if _ends(lines[i], begun["word"], bool(begun["dash"]))), None
        )
        if end is None:
            rest.append(line)
            continue
        target = TARGET.search(line[: begun.start()] + " " + line[begun.end() :])
        if target and len(files) < MOST_FILES:
            body = "\n".join(lines[index:end])
            files.append(HereDocument(target[1].strip("\"'"), body, bool(begun["quote"])))
        rest.append(line[: begun.start()] + line[begun.end() :] if target is None else "")
        index = end + 1
    return "\n".join(rest), files


def _ends(line: str, word: str, dash: bool) -> bool:
    return (line.lstrip("\t") if dash else line).rstrip() == word


def slurm_variables(text: str) -> dict[str, str]:
    """The variables that SLURM sets in a job, from the script's directives."""
    directives = dict(DIRECTIVE.findall(text))
    nodes = directives.get("--nodes") or directives.get("-N") or ""
    tasks = directives.get("--ntasks-per-node", "")
    gpus = next(
        (
            count[0]
            for name in ("--gpus-per-node", "--gres", "--gpus-per-task")
            if (count := re.findall(r"(?:^|gpu.*:|:)(\d+)$", directives.get(name, "")))
        ),
        "",
    )
    variables = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS_PER_NODE": tasks,
        "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_GPUS_ON_NODE": gpus,
    }
    total = directives.get("--ntasks") or directives.get("-n") or ""
    if not total and nodes.isdigit() and tasks.isdigit():
        total = str(int(nodes[:9]) * int(tasks[:9]))
    return {
        name: value
        for name, value in {**variables, "SLURM_NTASKS": total, "SLURM_NPROCS": total}.items()
        if value.isdigit()
    }
