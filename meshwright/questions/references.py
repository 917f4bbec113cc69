"""Types of API arguments: a name, a path, a mapping or an object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwmodels.cluster import Cluster
from simulator.frameworks import Framework
from simulator.models import Model

Reference = str | Path | Mapping[str, Any]
"""Catalogue name, path or mapping."""
ModelReference = Reference | Model
ClusterReference = Reference | Cluster
FrameworkReference = Reference | Framework
