"""Kinds of broken inputs of ``import``: launch files and reports of machines."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.case import Case, Kind, word
from tests.fuzz.mutate import ODD, broken
from tests.meshwright.exporters.launch_files import FILES

TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNV18\tNV18\tPXB\tSYS\t0-51\t0
GPU1\tNV18\t X \tNV18\tNV18\tPXB\tSYS\t0-51\t0
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPXB\t52-103\t1
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tPXB\t52-103\t1
NIC0\tPXB\tPXB\tSYS\tSYS\tX\tSYS
NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\tX
"""
NAMES = "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-5d5b-{i})\n" for i in range(4))
PORTS = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
NODES = (
    "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nbatch*       up   infinite     64   idle n[01-64]\n"
    "NodeName=n65 Arch=x86_64\n   Gres=gpu:h100:4(S:0-1)\n   RealMemory=515000\n"
)
BUS = "19:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n"


def _changed(text: str, random: Random) -> str:
    """A text with a word of a line replaced, or broken elsewhere."""
    if random.random() < 0.3:
        return broken(text, random)
    lines = text.split("\n")
    place = random.randrange(len(lines))
    parts = lines[place].split()
    if parts:
        parts[random.randrange(len(parts))] = word(random.choice(ODD)).replace("\n", " ")
    lines[place] = " ".join(parts)
    return "\n".join(lines)


def _launch(random: Random) -> Case:
    """A launch file with words changed."""
    launch = random.choice(FILES)
    name, text = Path(launch["path"]).name, launch["text"]
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        text = _changed(text, random)
    stated = {"gpus": 8, **launch["stated"]} if random.random() < 0.8 else {"cluster": "dgx-h100"}
    flags = [part for key, value in stated.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    return Case(("import", name, *flags, "-o", "out/s.yaml"), {name: text})


def _machine(random: Random) -> Case:
    """Reports of a machine with words changed."""
    parts = random.sample((TOPOLOGY, NAMES, PORTS, NODES, BUS), random.randrange(1, 5))
    text = "\n".join(parts)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        text = _changed(text, random)
    base = ("--cluster", "dgx-h100") if random.random() < 0.4 else ()
    return Case(("import", "node.txt", *base, "-o", "out/c.yaml"), {"node.txt": text})


KINDS: dict[str, Kind] = {"public-launch": _launch, "machine": _machine}
