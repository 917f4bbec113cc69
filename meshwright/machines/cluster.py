"""A cluster of reports: the catalogue's node of the device, with the counts and rates that machines state."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import InputError, suggestion
from core.loading import build
from core.parsing import read_text
from hwmodels.cluster import Cluster, clusters
from hwmodels.device import devices
from hwmodels.usual_clusters import USUAL
from meshwright.machines.adapters import RATES, read_ibstat, read_lspci
from meshwright.machines.nvidia_smi import read_devices, read_topology
from meshwright.machines.report import Report
from meshwright.machines.slurm import read_slurm

MARKS = re.compile(
    r"(?m)^\s*GPU0\s+X\b|^GPU \d+: .*UUID|^\s*Product Name\s*:|^CA '|NodeName=\S+|^PARTITION\s+AVAIL"
    r"|NVIDIA-SMI \d"
    r"|^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d (?:3D|VGA|Infiniband|Ethernet|Processing)"
)
"""What reports of machines have, and no launch file."""
MEMORY_SHARE = 0.12
"""Largest difference of the reported memory from the catalogue's, over it."""


class ReportedMachine(NamedTuple):
    """A cluster as a mapping, and what was not known."""

    cluster: dict[str, Any]
    kinds: tuple[str, ...]
    notes: tuple[str, ...]


def is_report(text: str) -> bool:
    """Whether a text is a report of a machine."""
    return MARKS.search(text[:1_000_000]) is not None


def texts_of(source: str) -> list[tuple[str, str]]:
    """Texts and names of a file, or of the files of a folder."""
    path = Path(source)
    files = sorted(part for part in path.iterdir() if part.is_file()) if path.is_dir() else [path]
    return [(read_text(file), str(file)) for file in files]


def read_machine(
    texts: Sequence[tuple[str, str]], base: str | None = None, gpus: int | None = None
) -> ReportedMachine:
    """Turn reports of a node, and lists of nodes, into a cluster.

    Args:
        texts: of the reports, with their names in errors.
        base: cluster of the catalogue whose links and network stand for what no report says; by default the
            usual one of the device.
        gpus: devices of the cluster, where no report lists nodes.

    Raises:
        InputError: no device is named, several are, or the reports disagree.
    """
    report, where = Report(), texts[0][1]
    for text, name in texts:
        read_devices(text, report)
        read_topology(text, report, name)
        read_ibstat(text, report)
        read_lspci(text, report)
        read_slurm(text, report, name)
    if not report.kinds:
        raise InputError("has no report of nvidia-smi, ibstat, lspci or SLURM", where)
    device, count = _device(report, base, where)
    notes = [*report.notes]
    name = base or _usual(device, report, notes)
    cluster: dict[str, Any] = copy.deepcopy(dict(clusters.definition(name)))
    cluster = {key: value for key, value in cluster.items() if key not in ("aliases", "description", "node")}
    sources = {**cluster.get("sources", {})}
    cluster |= {"name": "imported", "device": device, "devices_per_node": count}
    cluster["nodes"] = report.nodes or max((gpus or count) // count, 1)
    if not report.nodes:
        notes.append(f"no report lists nodes: {cluster['nodes']}")
    cluster["levels"] = _levels(cluster["levels"], count, report, name, notes)
    sources["levels"] = f"as {name}, for {count} devices ({', '.join(report.kinds)})"
    cluster["network"], sources["network"] = _network(dict(cluster["network"]), report, name, notes)
    cluster["sources"] = sources
    if report.host_bytes:
        source = {"value": report.host_bytes, "kind": "read", "source": "RealMemory of SLURM"}
        cluster["node"] = {"host_bytes": source}
    _check_device(device, report, notes, where)
    unsaid = "latencies, shape of the network and power of hosts"
    notes.append(f"no report states {unsaid}: those of {name} stand for them")
    build(Cluster, cluster, where)
    return ReportedMachine(cluster, tuple(report.kinds), tuple(notes))


def _device(report: Report, base: str | None, where: str) -> tuple[str, int]:
    """Catalogue name of the device, and its number in a node."""
    if len(report.devices) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in report.devices.items())
        raise InputError(f"a node of several devices ({listed}) is not one cluster", where)
    if not report.devices:
        if base is None:
            problem = "names no GPU: add the output of `nvidia-smi -L` to the file, or give --cluster NAME"
            raise InputError(problem, where)
        cluster = clusters.get(base)
        return cluster.device.name, report.count or cluster.devices_per_node
    ((name, count),) = report.devices.items()
    device = _resolved(name)
    if device is None:
        raise InputError(f"unknown GPU {name!r}{suggestion(name, devices.names())}", where)
    if report.count and report.count != count:
        raise InputError(f"{count} GPUs are listed, and {report.count} in the topology or in Gres", where)
    if not re.search(r"\d\s?GB", name, re.IGNORECASE) and not report.memory_bytes:
        sizes = [other for other in devices.names() if other.startswith(f"{device.partition('-')[0]}-")]
        if len(sizes) > 1 and re.fullmatch(r"\w+", name):
            report.notes.append(f"{name!r} names no memory: {device} of {', '.join(sizes)}")
    return device, count


def _resolved(name: str) -> str | None:
    short = re.sub(r"^(NVIDIA|AMD|Tesla)\s+|\s+AC$", "", name).strip()
    spellings = (name, short, re.sub(r"\s*\d+\s?GB\b.*", "", short), short.split()[0] if short else "")
    return next((device for spelled in spellings if spelled and (device := devices.resolve(spelled))), None)


def _joined(report: Report, count: int) -> int:
    """Devices that NVLink joins: all of a node, a pair or a group; 1 where there is none."""
    groups = [{device} for device in range(count)]
    for (first, second), path in report.paths.items():
        if path.startswith("NV") and max(first, second) < count:
            merged = groups[first] | groups[second]
            for device in merged:
                groups[device] = merged
    return min(len(group) for group in groups) if count else 1


def _usual(device: str, report: Report, notes: list[str]) -> str:
    """The catalogue's cluster whose links the reports show."""
    usual = USUAL.get(device)
    if usual is None:
        raise InputError(f"no cluster of {device} is in the catalogue; give --cluster NAME", "--cluster")
    if not report.paths:
        return usual
    linked = _joined(report, report.count) > 1
    if linked == (clusters.get(usual).levels[0].kind != "pcie"):
        return usual
    joined_so = [
        c.name for c in clusters if c.device.name == device and (c.levels[0].kind != "pcie") == linked
    ]
    other = next(iter(joined_so), "h100-pcie-8" if not linked else usual)
    kinds = "NVLink" if linked else "PCIe alone"
    notes.append(f"devices are joined by {kinds}: links are those of {other}")
    return other


def _levels(levels: Sequence[Any], count: int, report: Report, base: str, notes: list[str]) -> list[Any]:
    """Levels of links of a node with this number of devices."""
    links = [dict(level) for level in levels]
    joined = _joined(report, count) if report.paths else 0
    if joined == 1:
        links = [level for level in links if level["kind"] == "pcie"] or links
    rack = [level for level in links if level["devices"] > clusters.get(base).devices_per_node]
    inner = [level for level in links if level["devices"] < count and not rack]
    if 1 < joined < count and all(level["devices"] != joined for level in inner):
        notes.append(f"NVLink joins groups of {joined} of {count} devices, which {base} has not")
    if rack:
        return links
    last = links[-1] | {"devices": max(count, 2)}
    return [*[level for level in inner if level is not links[-1] and count % level["devices"] == 0], last]


def _network(
    network: dict[str, Any], report: Report, base: str, notes: list[str]
) -> tuple[dict[str, Any], str]:
    """NICs of a node, their rate and fabric."""
    if report.nics:
        rates = Counter(report.nics.values())
        (rate, fabric), ports = max(rates.items(), key=lambda item: (item[0][0] * item[1], item[0][0]))
        if len(report.nics) > ports:
            notes.append(
                f"{len(report.nics) - ports} of {len(report.nics)} ports have another rate and are left out"
            )
        network |= {"nics_per_node": ports, "nic_gbps": rate, "fabric": fabric}
        return network, "ibstat: active ports"
    behind_switch = [nic for nic, path in report.nic_paths.items() if path in ("PIX", "PXB")]
    if behind_switch:
        left = len(report.nic_paths) - len(behind_switch)
        if left:
            notes.append(f"{left} NICs are behind no switch of a GPU and are left out (storage)")
        network |= {"nics_per_node": len(behind_switch)}
        notes.append(f"no report states the rate of the NICs: {network['nic_gbps']} Gb/s of {base}")
        return network, f"nvidia-smi topo -m: NICs beside GPUs; rate of {base}"
    if report.cards:
        product, cards = max(report.cards.items(), key=lambda item: RATES[item[0]] * item[1])
        network |= {"nics_per_node": cards, "nic_gbps": RATES[product]}
        notes.append(
            f"{cards} {product}: the largest rate of a port stands for the link's ({RATES[product]} Gb/s)"
        )
        return network, f"lspci: {product}"
    notes.append(f"no report shows NICs: the network of {base} stands for it")
    return network, f"as {base}"


def _check_device(device: str, report: Report, notes: list[str], where: str) -> None:
    """The reported memory is the device's, and a lower power limit is told."""
    device_facts = devices.get(device)
    if report.memory_bytes and abs(report.memory_bytes / device_facts.memory_bytes - 1) > MEMORY_SHARE:
        memory = (
            f"{report.memory_bytes / 2**30:.1f} GiB; {device} has {device_facts.memory_bytes / 2**30:.1f}"
        )
        raise InputError(f"the reported memory is {memory}; a MIG slice, or another device", where)
    if report.power_watts and report.power_watts < 0.97 * device_facts.tdp_watts:
        limit = f"{report.power_watts:.0f} W of {device_facts.tdp_watts:.0f}"
        notes.append(f"devices are limited to {limit}: state power_cap_w of a pool")
