"""TensorRT-LLM: ``trtllm-serve`` with a YAML file of options; one script and one file per pool."""

from __future__ import annotations

import yaml

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header, nested
from meshwright.exporters.routers import FILE as ROUTER
from meshwright.exporters.routers import router_script
from meshwright.exporters.serving import (
    NOTES,
    deployment_gaps,
    file_of,
    pool_options,
    script_head,
)
from meshwright.exporters.table import table

TABLE = "trtllm-1.2.yaml"
ROLES = {"mixed": "", "prefill": " --server_role CONTEXT", "decode": " --server_role GENERATION"}


def write(question: ExportQuestion) -> Export:
    """The scripts, the files of options, and their gaps."""
    setting, launcher = question.deployed(), table(TABLE)
    router, _ = router_script(question, launcher.target)
    files, gaps = {}, deployment_gaps(setting, launcher.target, placed=False)
    for pool in setting.pools:
        options, more = pool_options(launcher, setting, pool)
        gaps += [gap for gap in more if gap not in gaps]
        script = file_of(setting, pool)
        config = script.replace("serve", "options").replace(".sh", ".yaml")
        body = yaml.safe_dump(nested(options), sort_keys=False)
        files[config] = commented(header(question, launcher.version, (*gaps,), NOTES)) + body
        text = script_head(question, launcher, pool, (*gaps,), options)
        per_node = min(setting.cluster.devices_per_node, pool.pool.devices)
        text += (
            f'\ntrtllm-serve "$MODEL" --port "$PORT" --gpus_per_node {per_node}{ROLES[pool.pool.role]} \\\n'
        )
        files[script] = text + f'    --config "$(dirname "$0")/{config}" "$@"\n'
    scripts = [name for name in files if name.endswith(".sh")]
    if router:
        files[ROUTER] = router
    return Export(files, tuple(gaps), NOTES, f"bash {scripts[0]}")


EXPORTER = Exporter("trtllm", "YAML and script for trtllm-serve", ("serving",), write, table=TABLE)
