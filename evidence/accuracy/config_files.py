"""``config.json`` files as read here: parameters, format, bytes of KV a token, or the refusal.

    python -m benchmarks.config_files FOLDER

FOLDER may be the ``model_configs`` of the package aiconfigurator-core (0.12.0: 89 files beside sidecars).
"""

from __future__ import annotations

import sys
from pathlib import Path

from core.errors import InputError
from simulator.models.huggingface import read_config
from simulator.ops.counts import model_parameters
from simulator.serving.steps.memory import kv_token_bytes


def main() -> None:
    """Print a line a file; exit 1 where one is refused."""
    refused = 0
    files = [path for path in sorted(Path(sys.argv[1]).rglob("*config.json")) if "quant" not in path.name]
    for path in files:
        name = path.parent.name if path.name == "config.json" else path.name.removesuffix("_config.json")
        try:
            model = read_config(path)
        except InputError as error:
            refused += 1
            print(f"{name:56} refused: {str(error)[-160:]}")
            continue
        kv = kv_token_bytes(model, 1, 1, model.checkpoint_kv)
        told = f" without {model.left_out}" if model.left_out else ""
        print(
            f"{name:56} {1e-9 * model_parameters(model):9.2f}B {model.checkpoint:5} {kv:9,.0f} B{told[:90]}"
        )
    print(f"{len(files) - refused} of {len(files)} read")
    sys.exit(1 if refused else 0)


if __name__ == "__main__":
    main()
