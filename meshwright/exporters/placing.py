"""Launch files wrapped by exporters to job schedulers."""

from __future__ import annotations

from meshwright.exporters.base import Export, ExportQuestion
from meshwright.exporters.launchers import launcher_of
from meshwright.exporters.serving import family_of
from simulator.serving.setting import PoolSetting


def wrapped(question: ExportQuestion) -> tuple[str, Export]:
    """The launcher of the question's framework or engine, and its files."""
    from meshwright.exporters import exporter

    if question.serves:
        setting = question.deployed()
        target = family_of(setting, setting.pools[0]) or "vllm"
    else:
        name = question.training()[0].setting.framework.name
        target = launcher_of(name, question.training()[0].setting.model.name)
    return target, exporter(target).write(question)


def placed_gaps(launch: Export) -> tuple[str, ...]:
    """Gaps of the launcher that remain when a job scheduler starts the replicas."""
    return tuple(gap for gap in launch.gaps if "start the script once a replica" not in gap)


def replica_nodes(question: ExportQuestion, pool: PoolSetting) -> tuple[int, int]:
    """Nodes of one replica, and its devices on each."""
    cluster = question.deployed().cluster
    nodes = cluster.nodes_for(pool.pool.devices)
    return nodes, -(-pool.pool.devices // nodes)
