"""Node lists of SLURM: ``sinfo``, ``scontrol show nodes`` and the lines of ``slurm.conf``."""

from __future__ import annotations

import re
from collections import Counter

from core.errors import InputError
from meshwright.machines.report import Report

NODES = re.compile(r"(?m)^\s*NodeName=(\S+)(.*(?:\n(?!\s*NodeName=).*)*)")
GRES = re.compile(r"\bgpu(?::([\w.-]*[A-Za-z][\w.-]*))?:(\d{1,3})")
RANGE = re.compile(r"^(.*?)\[([^\]]+)\](.*)$")
STATES = r"alloc|idle|mix|comp|down|drain|drng|maint|resv|plnd|unk|fail|boot|power"
TABLE = re.compile(rf"(?m)^\S+\*?\s+(?:up|down|inact|drain)\s+\S+\s+(\d+)\s+((?:{STATES})\S*)\s+(\S+)(.*)$")
MOST_NODES = 1_000_000


def expanded(names: str, where: str) -> list[str]:
    """Node names of SLURM's short form: ``gpu[001-003,007],login1``.

    Raises:
        InputError: a range that is no range, or more than a million nodes.
    """
    nodes: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", names):
        nodes += _of_part(part, where)
        if len(nodes) > MOST_NODES:
            raise InputError(f"more than {MOST_NODES:,} nodes", f"{where}: sinfo")
    return nodes


def _of_part(part: str, where: str) -> list[str]:
    """Names of one part; a part with several ranges has every combination."""
    begun = RANGE.match(part)
    if begun is None:
        return [part]
    rest = _of_part(begun[3], where) if begun[3] else [""]
    numbers: list[str] = []
    for span in begun[2].split(","):
        first, dash, last = span.partition("-")
        last = last if dash else first
        fits = first.isdigit() and last.isdigit() and max(len(first), len(last)) < 10
        if not fits or int(last) - int(first) > MOST_NODES:
            raise InputError(f"{part!r} is no list of nodes", f"{where}: sinfo")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    if len(numbers) * len(rest) > MOST_NODES:
        raise InputError(f"more than {MOST_NODES:,} nodes", f"{where}: sinfo")
    return [f"{begun[1]}{number}{end}" for number in numbers for end in rest]


def read_slurm(text: str, report: Report, where: str) -> None:
    """Nodes, their devices and host memory; nodes of another kind than most are named.

    Raises:
        InputError: a list of nodes that is none.
    """
    nodes = _detailed(text, where) or _listed(text, where)
    kinds = Counter((gpus, name) for gpus, name, _ in nodes.values() if gpus)
    if not nodes:
        return
    report.kinds.append("SLURM")
    if not kinds:
        report.nodes = len(nodes)
        report.notes.append("SLURM's list states no GPUs (Gres)")
        return
    (gpus, name), report.nodes = kinds.most_common(1)[0]
    report.count = max(report.count, gpus)
    if name and not report.devices:
        report.devices = {name: gpus}
    for (others, other), number in kinds.most_common()[1:]:
        report.notes.append(f"{number} nodes of {others} {other or 'GPUs'} each are left out")
    if without := len(nodes) - sum(kinds.values()):
        report.notes.append(f"{without} nodes without GPUs are left out")
    if memory := next((size for size in (nodes[node][2] for node in nodes) if size), 0.0):
        report.host_bytes = report.host_bytes or memory


Node = tuple[int, str, float]
"""GPUs, their name and the host's memory in bytes."""


def _gpus(words: str) -> tuple[int, str]:
    entries = GRES.findall(words)
    return sum(int(count) for _, count in entries), next((name for name, _ in entries if name), "")


def _detailed(text: str, where: str) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for names, words in NODES.findall(text):
        gres = re.search(r"\bGres=(\S+)", words)
        memory = re.search(r"\bRealMemory=(\d{1,12})", words)
        count, name = _gpus(gres[1]) if gres else (0, "")
        for node in expanded(names, where):
            if node != "DEFAULT":
                nodes[node] = count, name, int(memory[1]) * 2.0**20 if memory else 0.0
    return nodes


def _listed(text: str, where: str) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for _, _, names, words in TABLE.findall(text):
        count, name = _gpus(words)
        for node in expanded(names, where):
            nodes[node] = max(nodes.get(node, (0, "", 0.0)), (count, name, 0.0))
    return nodes
