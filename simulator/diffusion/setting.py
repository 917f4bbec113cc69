"""A diffusion question with all references resolved and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hwmodels.cluster import Cluster
from simulator.diffusion.addons import Addons
from simulator.diffusion.layout import Layout
from simulator.diffusion.libraries import DiffusionLibrary
from simulator.diffusion.models import DiffusionModel
from simulator.diffusion.workload import DiffusionWorkload


@dataclass(frozen=True)
class DiffusionSetting:
    """The fixed inputs of one batch."""

    title: str
    model: DiffusionModel
    cluster: Cluster
    workload: DiffusionWorkload
    layout: Layout
    library: DiffusionLibrary
    addons: Addons = field(default_factory=lambda: Addons.model_validate({}))

    @property
    def devices(self) -> int:
        """Devices of a replica: those of the layout, and those of ControlNets beside it."""
        return self.addons.devices(self.layout)

    @property
    def steps(self) -> int:
        """Steps of the sampler."""
        return self.workload.steps or self.model.steps

    @property
    def computed_steps(self) -> float:
        """Steps whose transformer runs; the others take their output from a cache."""
        return self.steps * (1.0 - self.workload.skipped)

    @property
    def calls(self) -> int:
        """Calls of the transformer for a sample and step: with and without the prompt."""
        if self.workload.guidance is None:
            return 2 if self.model.guidance == "classifier-free" else 1
        return 2 if self.workload.guidance else 1

    @property
    def prompts(self) -> int:
        """Prompts of a batch on the busiest copy of the layout."""
        return math.ceil(self.workload.batch / self.layout.data)

    @property
    def passes(self) -> float:
        """Runs of the blocks in a step of one device: two where its pipeline runs both calls apart."""
        return self.calls / self.layout.guidance if self.model.apart else 1.0

    @property
    def samples(self) -> float:
        """Samples of a run of the blocks on one device: those of all calls that it joins."""
        return self.prompts * self.calls / self.layout.guidance / self.passes

    @property
    def tokens(self) -> int:
        """Patches of a sample."""
        work = self.workload
        return self.model.tokens(work.height, work.width, work.frames)

    @property
    def latent(self) -> tuple[int, int, int]:
        """Latent frames, rows and columns."""
        work = self.workload
        return self.model.latent(work.height, work.width, work.frames)
