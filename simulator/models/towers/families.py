"""Readers of vision towers in ``config.json`` files, by family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core.loading import build
from simulator.models.huggingface_rules import Config
from simulator.models.towers.gemma3 import gemma3
from simulator.models.towers.gemma4 import gemma4
from simulator.models.towers.glm import glm
from simulator.models.towers.internvl import internvl
from simulator.models.towers.kimi import kimi
from simulator.models.towers.llama4 import llama4
from simulator.models.towers.pixtral import pixtral
from simulator.models.towers.qwen import qwen2_5, qwen3
from simulator.models.towers.reading import Reader, reader_of
from simulator.models.towers.tower import Tower

FAMILIES: Mapping[str, Reader] = MappingProxyType(
    {
        "qwen2_5_vl": qwen2_5,
        "qwen3_vl": qwen3,
        "qwen3_vl_moe": qwen3,
        "qwen3_5": qwen3,
        "qwen2_5_omni_thinker": qwen2_5,
        "qwen3_omni_moe_thinker": qwen3,
        "qwen3_5_moe": qwen3,
        "glm4v": glm,
        "glm4v_moe": glm,
        "glm46v": glm,
        "kimi_vl": kimi,
        "kimi_k25": kimi,
        "internvl": internvl,
        "internvl_chat": internvl,
        "llama4": llama4,
        "gemma3": gemma3,
        "gemma4": gemma4,
        "mistral3": pixtral,
        "llava": pixtral,
    }
)
"""Readers by ``model_type``."""


def read_tower(config: Config, name: str) -> Tower | None:
    """The tower of a vision-language model; None where the file has none, or none of a family known.

    Args:
        config: the top level of the file.
        name: of the model.

    Raises:
        InputError: a key of the tower is missing or wrong.
    """
    tower = reader_of(config, "vision_config", FAMILIES)
    if tower is None:
        return None
    vision, family = tower
    if family is pixtral and vision.values.get("model_type") != "pixtral":
        return None
    fields = family(vision, config)
    patch = {"patch": fields["patch"]}
    rule = {"kind": "grid", **patch, **fields["rule"]}
    if rule["kind"] == "grid":
        rule |= {"merge": fields["merge"], "temporal": fields["temporal"]}
    elif rule["kind"] in ("canvas", "tiles", "budget"):
        rule |= {"merge": fields["merge"]}
    return build(Tower, {**fields, "name": name, "rule": rule}, vision.where)
