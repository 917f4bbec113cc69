"""Engine presets: one file per version, found by name or by family and version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import UnknownNameError
from core.loading import Catalogue, looks_like_path
from hwmodels.device import Device
from simulator.serving.engines.engine import FOLDER, HAS_TILE, Engine, FormatClass, LayerClass, LayerTimes
from simulator.serving.engines.figure import Figure

__all__ = [
    "BLACKWELL",
    "Engine",
    "Figure",
    "LayerTimes",
    "Preset",
    "engines",
    "generation_of",
    "layer_times",
    "nearest",
    "stands_for",
]

RELEASE = re.compile(r"(?P<family>[A-Za-z][A-Za-z.-]*?)(?:[-_ :@]|==)?[vV]?(?P<version>\d+(\.\d+)+\S*)")
"""A family and a release: vllm-0.8.5, sglang v0.4.3.post2."""


class Engines(Catalogue[Engine]):
    """Engine presets by name; a release without a preset is the nearest one, a family its newest."""

    def get(self, reference: str | Path | Mapping[str, Any], where: str = "") -> Engine:
        """Return the preset that a name, a release, a family, a path or a mapping means.

        Raises:
            UnknownNameError: no shipped engine of that family.
            InputError: the file or the definition is wrong.
        """
        if isinstance(reference, str) and self.resolve(reference) is None and not looks_like_path(reference):
            release = RELEASE.fullmatch(reference.strip())
            if family := _family(release["family"] if release else reference):
                return _nearest_of(family, release["version"] if release else "").engine
        return super().get(reference, where)

    def families(self) -> set[str]:
        """Families of the presets."""
        return {self.definition(name)["engine"] for name in self.names()}

    def of_family(self, family: str) -> list[Engine]:
        """Presets of a family by name; those of others are not read."""
        return [super(Engines, self).get(n) for n in self.names() if self.definition(n)["engine"] == family]


engines = Engines("engine", FOLDER, Engine)

FAMILIES = {
    "trtllm": "tensorrt-llm",
    "trt": "tensorrt-llm",
    "tensorrtllm": "tensorrt-llm",
    "deepspeedmii": "fastgen",
    "deepspeedfastgen": "fastgen",
    "mii": "fastgen",
    "fastertransformer": "static",
    "ollama": "llama.cpp",
}
"""Other spellings of a family, letters and digits only."""


BLACKWELL = "blackwell"
"""NVIDIA's generation that has times of its own."""


class Preset(NamedTuple):
    """An engine preset, and whether it stands for another version than asked for."""

    engine: Engine
    assumed: bool


def family(name: str) -> str:
    """Return the family that an engine's name means.

    Raises:
        UnknownNameError: no shipped engine of that family.
    """
    engine = _family(name)
    if engine is None:
        raise UnknownNameError("engine", name, sorted(engines.families()))
    return engine


def _family(name: str) -> str | None:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    by_spelling = {re.sub(r"[^a-z0-9]", "", family): family for family in engines.families()}
    return FAMILIES.get(plain) or by_spelling.get(plain)


def _number(version: str) -> tuple[int, ...]:
    """Return the release number of a version text."""
    release = re.search(r"\d{1,9}(\.\d{1,9})*", version)
    return tuple(int(part) for part in release.group().split(".")) if release else (0,)


def nearest(name: str, version: str = "") -> Preset:
    """Return the preset of a family whose version is nearest to the one asked for, the newer of two.

    Without a release number (none, a branch's name, or a nightly build), the newest version with times from
    published runs: a preset read from code alone stands for its own releases only. ``assumed`` is false only
    for the release that a preset is named after (vllm-0.15 for 0.15.2, sglang-0.5.9 for 0.5.9.post1).

    Raises:
        UnknownNameError: no shipped engine of that family.
    """
    return _nearest_of(family(name), version)


def _nearest_of(family: str, version: str) -> Preset:
    presets = sorted(engines.of_family(family), key=lambda preset: _number(preset.version))
    if not re.search(r"\d", version) or re.search("nightly|main|dev-", version):
        return Preset([preset for preset in presets if preset.fitted][-1], True)
    release = _number(version)
    preset = min(
        reversed(presets), key=lambda preset: abs(_scalar(_number(preset.version)) - _scalar(release))
    )
    line = _number(preset.name)
    return Preset(preset, release[: len(line)] != line)


def stands_for(reference: object) -> str:
    """What a stated engine is predicted as, where the catalogue has no preset of that name; else empty."""
    if isinstance(reference, str) and engines.resolve(reference) is None and _family(reference):
        return f"{engines.get(reference).name} stands for {reference}"
    match = RELEASE.fullmatch(reference.strip()) if isinstance(reference, str) else None
    if match is None or engines.resolve(match[0]) is not None or _family(match["family"]) is None:
        return ""
    engine, release = engines.get(match[0]), _number(match["version"])
    line = _number(engine.name)
    if release[: len(line)] == line:
        return ""
    words = f"{engine.name} stands for {match['version']}"
    versions = [_number(preset.version) for preset in engines.of_family(engine.engine)]
    if release < min(versions):
        return f"{words}, older than every preset of {engine.engine}: its steps are likely longer"
    return f"{words}, younger than every preset of {engine.engine}" if release > max(versions) else words


def generation_of(engine: Engine, device: Device) -> str:
    """The generation whose times an engine states for a device: its own, or the nearest that it is based on.

    Empty for NVIDIA before Blackwell, whose times are not told apart.
    """
    lineage, stated = device.generation.lineage, {entry.generation for entry in engine.times}
    before_blackwell = device.vendor == "nvidia" and BLACKWELL not in lineage
    unstated = "" if before_blackwell else BLACKWELL if device.vendor == "nvidia" else lineage[0]
    return next((name for name in lineage if name in stated), unstated)


def layer_times(
    engine: Engine, layers: LayerClass, number_format: FormatClass, generation: str = ""
) -> tuple[LayerTimes, bool]:
    """Return the times of a class of layers, and whether they stand for another class, format or version.

    The nearest: the engine's own entry; another version's of the family (nearest first); another class,
    format or device generation of the engine, in this order of preference. A version with another scheduling
    policy is another engine in all but name, and comes after another device generation. The time a sequence
    is the engine's own even then: sampling and the host's work for it depend on the version, not on layers.
    A tile that another version's library lacks says nothing of this one's.
    """

    def distance(entry: LayerTimes) -> float:
        steps = _generation_distance(entry.generation, generation)
        steps += 2.0 * _class_distance(entry.layers, layers)
        return steps + _FORMAT_DISTANCE[frozenset((entry.format, number_format))]

    by_distance = sorted(engine.times, key=distance)
    if distance(by_distance[0]) == 0:
        return by_distance[0], False
    here = _number(engine.version)
    kin = [preset for preset in engines.of_family(engine.engine) if preset.name != engine.name]
    candidates = [(distance(by_distance[0]), 0.0, by_distance[0])]
    for preset in kin:
        there = _number(preset.version)
        gap = abs(_scalar(there) - _scalar(here))
        best = min(preset.times, key=distance)
        other = OTHER_POLICY * (preset.scheduler.value != engine.scheduler.value)
        candidates.append((distance(best) + other, gap, best))
    stand_in = min(candidates, key=lambda item: item[:2])[2]
    update: dict[str, object] = {} if stand_in is by_distance[0] else {"latents_s": HAS_TILE}
    if _generation_distance(by_distance[0].generation, generation) <= 1.0:
        update["sequence_s"] = by_distance[0].sequence_s
    return stand_in.model_copy(update=update), True


OTHER_POLICY = 4.5
"""Distance between versions with different scheduling policies."""

_FORMAT_DISTANCE = {
    frozenset(("16-bit",)): 0.0,
    frozenset(("fp8",)): 0.0,
    frozenset(("fp4",)): 0.0,
    frozenset(("16-bit", "fp8")): 0.6,
    frozenset(("fp8", "fp4")): 0.5,
    frozenset(("16-bit", "fp4")): 1.0,
}


def _generation_distance(generation: str, other: str) -> float:
    if generation == other:
        return 0.0
    return 0.3 if {generation, other} == {"", BLACKWELL} else 4.0


def _class_distance(layer: LayerClass, other: LayerClass) -> float:
    if layer == other:
        return 0.0
    return 2.0 if "dense" in (layer, other) else 1.0


def _scalar(version: tuple[int, ...]) -> float:
    return sum(part / 1000.0**place for place, part in enumerate(version[:3]))
