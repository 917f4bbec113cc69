"""The keys of a serving scenario."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from core.errors import located
from core.loading import Strict, build
from core.quantities import Count
from hwmodels.cluster import clusters
from simulator.models import models
from simulator.scenario import Reference, Variation, find
from simulator.serving.question.deployment import Deployment, pools_of
from simulator.serving.setting import ServingSetting, serving_setting
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.workload import Serving
from simulator.site import read_site, server_site


class ServingDefinition(Strict):
    """The keys of a serving scenario's file."""

    title: str = Field("", description="the question in one line")
    model: Reference = Field(description="catalogue name, path (YAML, config.json or its folder) or mapping")
    cluster: Reference = Field(description="catalogue name, path or mapping")
    gpus: Count | None = Field(None, description="devices of the job; default: what the pools occupy")
    workload: Serving = Field(description="what users ask")
    deployment: Deployment = Field(
        default_factory=lambda: Deployment.model_validate({}), description="how the model is served"
    )
    site: Reference | None = Field(
        default=None, description="what `learn` found on a server: a site file or its mapping"
    )
    seed: int = Field(0, ge=0, le=10**18, description="of all random draws")
    variations: dict[str, Variation] = Field(
        default_factory=dict, description="named changes to ask `whatif` about"
    )

    def at_site(self, where: str, folder: Path) -> Deployment:
        """The deployment with the site's factors, which pools without a site of their own have.

        Raises:
            InputError: an unreadable site, or one without servers.
        """
        if self.site is None or self.deployment.site is not None:
            return self.deployment
        site = server_site(read_site(self.site, f"{where}: site", folder), f"{where}: site")
        return self.deployment.model_copy(update={"site": site})


def check_serving(data: Mapping[str, Any], where: str, folder: Path) -> ServingDefinition:
    """Check every key and value of a serving scenario, and that its model and cluster exist.

    Raises:
        InputError: a wrong key or value, an unknown name, an unreadable file.
    """
    written = build(ServingDefinition, data, where)
    find(models, written.model, folder, f"{where}: model")
    find(clusters, written.cluster, folder, f"{where}: cluster")
    pools_of(written.at_site(where, folder), f"{where}: deployment")
    return written


def make_serving(
    data: Mapping[str, Any], where: str, folder: Path, tables: SharedTables | None = None
) -> ServingSetting:
    """Turn the mapping of a serving scenario into a setting that can run.

    Args:
        data: keys and values as in a file.
        where: name of the source in errors.
        folder: base of relative paths.
        tables: step times shared between questions about models and clusters of the catalogues.

    Raises:
        InputError: a wrong key or value, an unknown name, an impossible deployment; with the key path.
        InfeasibleError: the model does not fit.
    """
    written = build(ServingDefinition, data, where)
    model = find(models, written.model, folder, f"{where}: model")
    cluster = find(clusters, written.cluster, folder, f"{where}: cluster")
    deployment = written.at_site(where, folder)
    pools = pools_of(deployment, f"{where}: deployment")
    # Pools that name a cluster of their own take its devices.
    needed = sum(pool.devices * pool.replicas for pool in pools if pool.cluster in (None, written.cluster))
    needed += deployment.joining(pools)
    with located(f"{where}: {'gpus' if written.gpus else 'deployment'}"):
        cluster = cluster.resized(written.gpus or max(needed, 1))
    return serving_setting(
        written.title,
        model,
        cluster,
        written.workload,
        deployment,
        written.seed,
        folder,
        where,
        tables,
    )
