"""Reports of machines become clusters, which say what they could not know."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from hwmodels.cluster import Cluster
from meshwright.machines.slurm import expanded


def topology(count: int, joined: int, nics: int = 0, storage: int = 0) -> str:
    """``nvidia-smi topo -m`` of a node whose devices are joined in groups; each NIC is beside one device."""
    devices = [f"GPU{i}" for i in range(count)]
    ports = [f"NIC{i}" for i in range(nics + storage)]
    lines = ["\t" + "\t".join([*devices, *ports, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for i, device in enumerate(devices):
        paths = [" X " if i == j else "NV18" if i // joined == j // joined else "SYS" for j in range(count)]
        beside = ["PXB" if i == j else "SYS" for j in range(nics)] + ["SYS"] * storage
        lines.append("\t".join([device, *paths, *beside, "0-51,104-155", "0", "N/A"]))
    for i, port in enumerate(ports):
        paths = ["PXB" if i == j and i < nics else "SYS" for j in range(count)]
        lines.append("\t".join([port, *paths, *["X" if i == j else "SYS" for j in range(len(ports))]]))
    legend = "Legend:\n\n  X    = Self\n  SYS  = between NUMA nodes\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    return "\n".join(lines) + f"\n\n{legend}"


def listed(name: str, count: int) -> str:
    return "".join(f"GPU {i}: {name} (UUID: GPU-5d5b-{i})\n" for i in range(count))


def ibstat(rates: list[int], layer: str = "InfiniBand", state: str = "Active") -> str:
    return "".join(
        f"CA 'mlx5_{i}'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: {state}\n\t\tRate: {rate}\n"
        f"\t\tLink layer: {layer}\n"
        for i, rate in enumerate(rates)
    )


def read(folder: Path, cluster: str | None = None, **texts: str):
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    imported = mw.import_(folder, cluster=cluster)
    return Cluster.model_validate(imported.scenario), " | ".join(imported.notes)


def test_a_node_of_a_fabric_is_read_whole(tmp_path):
    cluster, notes = read(
        tmp_path,
        topo=topology(8, 8, nics=8, storage=2),
        names=listed("NVIDIA H100 80GB HBM3", 8),
        ports=ibstat([400] * 8 + [200] * 2),
        nodes="PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "batch*       up   infinite      3  drain gpu[001,007-008]\n"
        "batch*       up   infinite     61   idle gpu[002-006,009-064]\n",
    )
    assert (cluster.device.name, cluster.devices_per_node, cluster.nodes) == ("h100-sxm", 8, 64)
    assert (cluster.network.nics_per_node, cluster.network.nic_gbps, cluster.network.fabric) == (
        8,
        400,
        "infiniband",
    )
    assert cluster.levels[-1].devices == 8
    assert "2 of 10 ports have another rate" in notes
    assert "no report states latencies" in notes


def test_bridges_between_pairs_are_not_a_switch(tmp_path):
    cluster, notes = read(tmp_path, topo=topology(4, 2), names=listed("NVIDIA H100 PCIe", 4))
    assert [(level.kind, level.devices) for level in cluster.levels] == [("nvlink", 2), ("pcie", 4)]
    assert "no report shows NICs" in notes


def test_devices_without_links_of_their_own_are_on_pcie(tmp_path):
    cluster, notes = read(tmp_path, topo=topology(4, 1), names=listed("NVIDIA H100 80GB HBM3", 4))
    assert [(level.kind, level.devices) for level in cluster.levels] == [("pcie", 4)]
    assert "PCIe alone" in notes


def test_a_topology_without_names_asks_for_them(tmp_path):
    path = tmp_path / "topo.txt"
    path.write_text(topology(8, 8))
    with pytest.raises(InputError, match="nvidia-smi -L"):
        mw.import_(path)
    cluster, _ = read(tmp_path, cluster="dgx-a100-80gb")
    assert (cluster.device.name, cluster.devices_per_node) == ("a100-sxm-80gb", 8)


QUERY = """\
==============NVSMI LOG==============

Attached GPUs                             : 2
GPU 00000000:19:00.0
    Product Name                          : NVIDIA H200
    FB Memory Usage
        Total                             : {memory} MiB
    Current Power Limit                   : 500.00 W
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H200
    FB Memory Usage
        Total                             : {memory} MiB
"""


def test_a_query_tells_the_power_limit(tmp_path):
    cluster, notes = read(tmp_path, query=QUERY.format(memory=143771))
    assert (cluster.device.name, cluster.devices_per_node) == ("h200-sxm", 2)
    assert "limited to 500 W of 700" in notes


def test_a_slice_of_a_device_is_refused(tmp_path):
    with pytest.raises(InputError, match="MIG slice"):
        read(tmp_path, query=QUERY.format(memory=71885))


SCONTROL = """\
NodeName=gn001 Arch=x86_64 CoresPerSocket=32
   Gres=gpu:a100:4(S:0-1)
   RealMemory=515000 Sockets=2
NodeName=gn002 Arch=x86_64 CoresPerSocket=32
   Gres=gpu:a100:4(S:0-1)
   RealMemory=515000 Sockets=2
NodeName=gn003 Arch=x86_64 CoresPerSocket=32
   Gres=gpu:h100:8
NodeName=cn001 Arch=x86_64 CoresPerSocket=32
   Gres=(null)
"""


def test_nodes_of_slurm(tmp_path):
    cluster, notes = read(tmp_path, nodes=SCONTROL)
    assert (cluster.device.name, cluster.devices_per_node, cluster.nodes) == ("a100-sxm-80gb", 4, 2)
    assert cluster.node is not None and cluster.node.host_bytes == 515000 * 2**20
    assert "1 nodes of 8 h100 each are left out" in notes and "1 nodes without GPUs" in notes
    assert "names no memory" in notes


def test_names_of_the_bus(tmp_path):
    text = "".join(
        f"{i:02x}:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n" for i in range(8)
    ) + "".join(
        f"{i:02x}:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
        for i in range(16, 24)
    )
    cluster, notes = read(tmp_path, bus=text)
    assert (cluster.device.name, cluster.network.nics_per_node) == ("h100-sxm", 8)
    assert "400 Gb/s" in notes


@pytest.mark.parametrize(
    ("names", "nodes"),
    [
        ("n1", ["n1"]),
        ("gpu[001-003,007],login1", ["gpu001", "gpu002", "gpu003", "gpu007", "login1"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a,b-ib,c", ["a", "b-ib", "c"]),
    ],
)
def test_short_forms_of_node_names(names, nodes):
    assert expanded(names, "sinfo") == nodes


def test_several_devices_in_a_node_are_refused(tmp_path):
    with pytest.raises(InputError, match="several devices"):
        read(tmp_path, names=listed("NVIDIA L4", 2) + "GPU 2: NVIDIA A10 (UUID: GPU-9)\n")


def test_a_broken_topology_names_its_row(tmp_path):
    text = topology(4, 4).replace("GPU2\tNV18\tNV18", "GPU2\tNV18\tXX")
    with pytest.raises(InputError, match="paths of GPU2"):
        read(tmp_path, topo=text, names=listed("NVIDIA H100 80GB HBM3", 4))


def test_a_rate_that_no_link_has_is_refused_by_its_key(tmp_path):
    with pytest.raises(InputError, match=r"network\.nic_gbps: is in Gb/s .* found 9\.22"):
        read(tmp_path, cluster="dgx-h100", ib=ibstat([2**63]))
