"""Names of the catalogues that a question may use."""

from __future__ import annotations

from hwmodels.cluster import clusters
from meshwright.questions.scenarios import shipped_scenarios
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.serving.engines import engines


def names() -> dict[str, list[str]]:
    """Names of models, clusters, frameworks, engines and scenarios."""
    return {
        "models": sorted(models.names()),
        "clusters": sorted(clusters.names()),
        "frameworks": sorted(frameworks.names()),
        "engines": sorted(engines.names()),
        "scenarios": sorted(shipped_scenarios()),
    }
