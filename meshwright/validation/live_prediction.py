"""The simulator's prediction of the closed loop's training steps."""

from __future__ import annotations

from typing import Any

from core.loading import build
from hwmodels.cluster import Cluster
from meshwright.validation.live import PredictedStep
from meshwright.validation.live_config import LiveConfig
from simulator.frameworks import Framework, frameworks
from simulator.levers import Choices
from simulator.models import Model
from simulator.plan import Plans
from simulator.scenario import complete_plan
from simulator.setting import Setting
from simulator.training import predict
from simulator.uncertainty import band
from simulator.workload import Training

WAITING = ("tensor", "context", "expert", "pipeline", "bubble", "gradients", "parameters")
"""Parts of a step in which a rank communicates or waits for communication."""

UNNAMED = ("launch", "variation")
"""Parts without an operator; they count as overhead."""


def setting_of(config: LiveConfig, cluster: Cluster) -> Setting:
    """Return the question of a live configuration on a cluster of its devices."""
    model = build(
        Model,
        {
            "name": "small-gpt",
            "layers": config.layers,
            "hidden": config.hidden,
            "heads": config.heads,
            "feed_forward": 4 * config.hidden,
            "vocabulary": config.vocabulary,
            "max_sequence": config.sequence,
            "bias": True,
        },
        "small GPT",
    )
    training = build(
        Training,
        {
            "seq_len": config.sequence,
            "global_batch": config.tokens_per_step // config.sequence,
            "precision": config.dtype,
        },
        "small GPT",
    )
    return Setting(model, cluster, training, _framework(training.activation_bytes))


def _framework(width: int) -> Framework:
    """Plain torch; parameters, gradients and moments all have the width of the activations here."""
    eager = frameworks.get("torch-eager")
    defaults = {"gradient_bytes": width, "reduce_bytes": width}
    traffic = eager.kernels.optimizer_bytes_per_parameter * width / Choices.of(eager.defaults).gradient_bytes
    kernels = {"optimizer_bytes_per_parameter": traffic}
    return eager.changed({"gathers": {"bytes": width}, "kernels": kernels, "defaults": defaults})


def predict_step(config: LiveConfig, cluster: Cluster) -> PredictedStep:
    """Predict the steps that ``live.train`` runs.

    Args:
        config: the model and how it is laid out.
        cluster: as many devices as the configuration asks for.

    Raises:
        InputError: the devices, or the number format, are not those of the configuration.
    """
    setting = setting_of(config, cluster)
    plan = complete_plan(setting, _layout(config), "small GPT")
    step = predict(setting, Plans.of(plan))
    operators: dict[str, float] = {}
    for part, seconds in step.seconds.items():
        if part not in UNNAMED:
            name = "collective" if part in WAITING else part
            operators[name] = operators.get(name, 0.0) + float(seconds[0])
    operator_seconds = {name: seconds for name, seconds in operators.items() if seconds}
    return PredictedStep(float(step.time[0]), operator_seconds, float(band(setting, step)[0]))


def _layout(config: LiveConfig) -> dict[str, Any]:
    """The plan's fields that the layout decides; all others are the framework's defaults."""
    fields: dict[str, Any] = {"micro_batch": config.micro_batch}
    if config.parallelism == "pipeline":
        return fields | {"pipeline": config.devices}
    return fields | {"data": config.devices, "zero": 3 if config.parallelism == "fsdp" else 0}
