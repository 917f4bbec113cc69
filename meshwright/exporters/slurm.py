"""Slurm: an sbatch script around the launcher's own files."""

from __future__ import annotations

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header
from meshwright.exporters.placing import placed_gaps, replica_nodes, wrapped
from meshwright.exporters.routers import FILE as ROUTER
from meshwright.exporters.routers import PROGRAMS, disaggregated, needs_router
from meshwright.exporters.serving import file_of

VERSION = "Slurm 24 (sbatch, srun)"
NOTES = ("partition, account, time limit, container: #SBATCH lines of your site",)
FIRST_PORT = 8100
ROUTER_PORT = 8000
URLS = {"mixed": "WORKER_URLS", "prefill": "PREFILL_URLS", "decode": "DECODE_URLS"}
"""Variables of the router's script, by the role of the pools."""


def write(question: ExportQuestion) -> Export:
    """The job script, the launcher's files, and their gaps."""
    target, launch = wrapped(question)
    gaps, notes = placed_gaps(launch), (*launch.notes, *NOTES)
    if question.serves:
        cluster = question.deployed().cluster
        body = _serving(question, target)
    else:
        cluster = question.training()[0].setting.cluster
        body = f"srun --kill-on-bad-exit=1 bash -c 'NODE_RANK=$SLURM_NODEID {launch.run}'\n"
    nodes = cluster.nodes_for(cluster.devices)
    text = "#!/usr/bin/env bash\n#SBATCH --job-name=meshwright\n"
    text += f"#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node={1 if not question.serves else 8}\n"
    text += f"#SBATCH --gpus-per-node={min(cluster.devices_per_node, cluster.devices)}\n"
    text += "#SBATCH --exclusive\n#SBATCH --output=%x-%j.log\n"
    text += commented(header(question, f"{VERSION} and {target}", gaps, notes))
    text += "# Submit from the folder of these files: sbatch job.sbatch\nset -euo pipefail\n\n"
    text += 'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
    text += f"export MASTER_PORT=29500 NNODES=${{SLURM_NNODES:-{nodes}}}\n\n" + body
    return Export({"job.sbatch": text, **launch.files}, gaps, notes, "sbatch job.sbatch")


def _serving(question: ExportQuestion, target: str) -> str:
    """One concurrent job step per replica, with distinct ports, and the router before them."""
    setting = question.deployed()
    routed = needs_router(setting) and (target in PROGRAMS or disaggregated(setting))
    lines, port = [], FIRST_PORT
    if routed:
        lines += [
            "# Every server writes its address here, for the router.",
            "export ENDPOINTS=$(mktemp -d -p .)",
        ]
    for pool in setting.pools:
        nodes, devices = replica_nodes(question, pool)
        where = f"--nodes={nodes} --ntasks={nodes} --gpus-per-node={devices} --exact"
        inner = f"NODE_RANK=$SLURM_PROCID bash {file_of(setting, pool)}"
        if nodes > 1:
            first = 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)'
            inner = f"{first} {inner}"
        if routed:
            announces = f'echo "http://$(hostname):$PORT" > "$ENDPOINTS/{pool.pool.role}-$PORT"'
            inner = f'[ "$SLURM_PROCID" != 0 ] || {announces}; {inner}'
        lines.append(f"for replica in $(seq 0 {pool.pool.replicas - 1}); do")
        lines.append(f"    PORT=$(({port} + replica)) srun {where} \\")
        lines.append(f"        bash -c '{inner}' &")
        lines.append("done")
        port += pool.pool.replicas
    if routed:
        lines.append(f'until [ "$(ls "$ENDPOINTS" | wc -l)" -eq {port - FIRST_PORT} ]; do sleep 1; done')
        for role, name in URLS.items():
            if any(pool.pool.role == role for pool in setting.pools):
                lines.append(f'export {name}="$(cat "$ENDPOINTS"/{role}-*)"')
        lines.append(f"PORT={ROUTER_PORT} bash {ROUTER} &")
    return "\n".join([*lines, "wait", ""])


EXPORTER = Exporter("slurm", "sbatch script with the launcher's files", ("training", "serving"), write)
