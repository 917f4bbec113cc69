"""Backward pass of Mamba-2's scan on Blackwell, from one model trained on a Hopper and a Blackwell device.

    python -m benchmarks.scan_backward

No public table times the backward pass. Issue 904 of state-spaces/mamba prints the FLOP/s of a Mamba-2 of 48
layers in training on three devices. Its count of FLOPs is not stated, so ratios of devices decide: all that
GB200 gains less on H200 than predicted is put on the backward pass, as the forward pass is timed on GB200.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evidence.command import command
from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models.huggingface import read_config
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.workload import Training

MEASURED = {"dgx-a100-80gb": 102.5e12, "dgx-h200": 239.2e12, "gb200-nvl72": 360.4e12}
"""FLOP/s of a device by cluster (state-spaces/mamba, issue 904): 16 bits, 4 sequences of 4,096 tokens."""

CONFIG = {
    "model_type": "mamba2",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_heads": 64,
    "head_dim": 64,
    "state_size": 128,
    "n_groups": 1,
    "conv_kernel": 4,
    "chunk_size": 256,
    "vocab_size": 50288,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": True,
}
"""The model: widths of the issue, the rest as mamba_ssm's Mamba2 by default."""

SEQUENCES, TOKENS = 4, 4096
REFERENCE, FITTED = "dgx-h200", "gb200-nvl72"


@dataclass(frozen=True)
class Trained:
    """A step predicted with no slowdown of the backward pass, and its scans' seconds forward and backward."""

    step: float
    forward: float
    backward: float


def trained(cluster: str) -> Trained:
    """The step of the model on one device of a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(CONFIG))
        model = read_config(path)
    training = Training.model_validate({"seq_len": TOKENS, "global_batch": SEQUENCES, "precision": "bf16"})
    machine = clusters.get(cluster).resized(1)
    setting = Setting(model, machine, training, frameworks.get("torch-fsdp-eager"))
    plan = Plan.model_validate({"micro_batch": SEQUENCES, "zero": 3})
    step = float(predict(setting, Plans.of(plan)).time[0])
    sizes = SEQUENCES, TOKENS, CONFIG["num_heads"], CONFIG["state_size"], CONFIG["head_dim"]
    layers = float(CONFIG["num_hidden_layers"])
    forward, backward = (
        layers * float(np.ravel(setting.kernels.linear_attention(*sizes, 256, 1, direction=way))[0])
        for way in ("forward", "backward")
    )
    shipped = setting.kernels.calibration.scans["mamba2"].form.backward_slowdown
    return Trained(step - backward * (1 - 1 / shipped), forward, backward / shipped)


def slowdown(steps: dict[str, Trained]) -> float:
    """The backward pass on the fitted device over the predicted one, as the measured gain asks."""
    gained = MEASURED[FITTED] / MEASURED[REFERENCE]
    fitted = steps[FITTED]
    return 1.0 + (steps[REFERENCE].step / gained - fitted.step) / fitted.backward


@command
def main() -> None:
    """Print predicted and measured speeds relative to the reference, and the slowdown that is left."""
    steps = {cluster: trained(cluster) for cluster in MEASURED}
    print(
        f"{'cluster':<16}{'step s':>9}{'scan fwd s':>12}{'scan bwd s':>12}{'over H200':>11}{'measured':>10}"
    )
    for cluster, each in steps.items():
        ratio = steps[REFERENCE].step / each.step
        over_reference = MEASURED[cluster] / MEASURED[REFERENCE]
        seconds = f"{each.step:>9.4f}{each.forward:>12.4f}{each.backward:>9.4f}"
        print(f"{cluster:<16}{seconds}{ratio:>11.3f}{over_reference:>10.3f}")
    print(f"backward pass on {FITTED} over that of its constants: {slowdown(steps):.2f}")
