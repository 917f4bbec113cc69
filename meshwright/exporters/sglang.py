"""SGLang: ``python -m sglang.launch_server`` with its flags, one script per pool."""

from __future__ import annotations

from meshwright.exporters.base import Export, Exporter, ExportQuestion
from meshwright.exporters.serving import engine_scripts
from meshwright.exporters.table import table

TABLE = "sglang-0.5.23.yaml"
COMMAND = """\
if [[ " ${ENGINE_ARGS[*]} " == *" --disaggregation-mode prefill "* ]]; then
    ENGINE_ARGS+=(--disaggregation-bootstrap-port "$((PORT + 998))")
fi
if [[ " ${ENGINE_ARGS[*]} " == *" --nnodes "* ]]; then
    ENGINE_ARGS+=(--node-rank "$NODE_RANK" --dist-init-addr "$MASTER_ADDR:$MASTER_PORT")
fi
python3 -m sglang.launch_server --model-path "$MODEL" --port "$PORT" "${ENGINE_ARGS[@]}" "$@"
"""


def write(question: ExportQuestion) -> Export:
    """The scripts and their gaps."""
    return engine_scripts(question, table(TABLE), COMMAND)


EXPORTER = Exporter("sglang", "shell script for sglang.launch_server", ("serving",), write, table=TABLE)
