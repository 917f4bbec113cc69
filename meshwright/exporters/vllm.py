"""vLLM: ``vllm serve`` with its flags, one script per pool."""

from __future__ import annotations

from meshwright.exporters.base import Export, Exporter, ExportQuestion
from meshwright.exporters.serving import engine_scripts
from meshwright.exporters.table import table

TABLE = "vllm-0.33.yaml"
COMMAND = """\
if [[ " ${ENGINE_ARGS[*]} " == *" --kv-transfer-config "* ]]; then
    # Address at which the other pool reads KV blocks; ports of servers on one node must differ.
    export VLLM_NIXL_SIDE_CHANNEL_HOST=${VLLM_NIXL_SIDE_CHANNEL_HOST:-$(hostname -I | cut -d ' ' -f 1)}
    export VLLM_NIXL_SIDE_CHANNEL_PORT=${VLLM_NIXL_SIDE_CHANNEL_PORT:-$((5600 + PORT % 1000 * 16))}
fi
if [[ " ${ENGINE_ARGS[*]} " == *" --nnodes "* ]]; then
    ENGINE_ARGS+=(--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT")
    if [[ "$NODE_RANK" != 0 ]]; then ENGINE_ARGS+=(--headless); fi
fi
vllm serve "$MODEL" --port "$PORT" "${ENGINE_ARGS[@]}" "$@"
"""


def write(question: ExportQuestion) -> Export:
    """The scripts and their gaps."""
    return engine_scripts(question, table(TABLE), COMMAND)


EXPORTER = Exporter("vllm", "shell script for vllm serve", ("serving",), write, table=TABLE)
