"""Parameters of ``config.json`` files as read here and as Hugging Face builds them, on torch's meta device.

    python -m benchmarks.parameter_counts [NAME ...]

Needs ``pip install torch transformers``; nothing is downloaded. The files are those of
``tests/simulator/models/hf_configs.py``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from simulator.models.huggingface import read_config
from simulator.ops.counts import model_parameters
from tests.simulator.models.hf_configs import CONFIGS, PUBLISHED_2025

FILES: dict[str, dict[str, Any]] = {**CONFIGS, **PUBLISHED_2025}


def of_hugging_face(config: dict[str, Any]) -> int:
    """Parameters that transformers builds; shared tensors count once."""
    import torch
    import transformers

    named = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    made = transformers.AutoConfig.for_model(config["model_type"], **named)
    text = getattr(made, "text_config", made)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(text)
    model.tie_weights()
    return sum({id(tensor): tensor.numel() for tensor in model.parameters()}.values())


def main() -> None:
    """Print a line a model."""
    wanted = sys.argv[1:] or list(FILES)
    print(f"{'model':28} {'Meshwright':>18} {'transformers':>18} {'ours over':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(FILES[name]), encoding="utf-8")
            ours = model_parameters(read_config(path))
            try:
                theirs = of_hugging_face(FILES[name])
            except Exception as error:  # whatever a release of transformers refuses
                print(f"{name:28} {ours:18,} {type(error).__name__}: {str(error)[:60]}")
                continue
            print(f"{name:28} {ours:18,} {theirs:18,} {100 * (ours / theirs - 1):+9.3f} %")


if __name__ == "__main__":
    main()
