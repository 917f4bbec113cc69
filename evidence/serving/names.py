"""Published rows' spellings of models, devices, number formats and versions, and their names here."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from core.errors import MeshwrightError
from core.loading import read_mapping
from hwmodels.cluster import Cluster, usual_cluster
from hwmodels.device import devices
from meshwright.validation.rows import SkippedRow
from simulator.models import Model, models


@cache
def _words() -> dict[str, Any]:
    return read_mapping(Path(__file__).with_name("names.yaml"))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _matched(kind: str, key: str, text: str) -> str | None:
    for rule in _words()[kind]:
        if match := re.search(rule["match"], text):
            return rule[key].format(**match.groupdict())
    return None


@lru_cache(maxsize=1024)
def find_model(name: str) -> Model:
    """The catalogue's model of a name.

    Raises:
        Skipped: no such model.
    """
    if not name:
        raise SkippedRow("model not stated")
    model = models.resolve(name)
    if model is None:
        raise SkippedRow(f"model {name!r} is not known")
    return models.get(model)


@lru_cache(maxsize=1024)
def find_cluster(gpu: str) -> Cluster:
    """The usual cluster of a device.

    Raises:
        Skipped: no such device.
    """
    if not gpu:
        raise SkippedRow("gpu not stated")
    name = devices.resolve(gpu) or _matched("devices", "device", _plain(gpu))
    if name is None or name not in devices.names():
        raise SkippedRow(f"GPU {gpu!r} is not known")
    try:
        return usual_cluster(name)
    except MeshwrightError as error:
        raise SkippedRow(str(error)) from None


def find_format(text: str, default: str = "") -> str:
    """The number format of weights.

    Raises:
        Skipped: not stated and no default, or unknown.
    """
    if not text:
        if default:
            return default
        raise SkippedRow("weight precision not stated")
    name = _matched("formats", "format", text.lower())
    if name is None:
        raise SkippedRow(f"precision {text!r} is not known")
    return name


def find_activations(text: str) -> str | None:
    """The number format of the products' inputs that a spelling of the weights' format states."""
    return _matched("activations", "format", text.lower())


def engine_version(version: str, notes: str) -> str:
    """The engine's version: that inside a runtime image where the row names the image's own release."""
    return _matched("images", "version", notes.lower()) or version
