"""The keys of a scenario of simulators with a small policy, and the checked question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from core.errors import InputError, located
from core.loading import Strict, build
from core.quantities import Count, NotNegative, Positive
from hwmodels.cluster import Cluster, clusters
from simulator.frames.samplers import Sampler, samplers
from simulator.scenario import Reference, Variation, find

Width = Annotated[int, Field(gt=0, le=2**20)]


class PolicyLayer(Strict):
    """One product of the policy with its weights; a convolution has a row for each place of its output."""

    inputs: Width = Field(
        description="inputs of an output: of a convolution kernel width x height x channels"
    )
    outputs: Width = Field(description="outputs of a row: of a convolution its channels")
    rows: Width = Field(1, description="rows of an observation")


class PolicyModel(Strict):
    """A small policy with its value head."""

    name: str = Field("policy", description="of the policy, in answers")
    layers: Annotated[tuple[PolicyLayer, ...], Field(strict=False, min_length=1, max_length=256)] = Field(
        description="products of a forward pass"
    )
    dtype: Literal["fp32", "tf32", "fp16", "bf16"] = Field("tf32", description="format of the products")

    @property
    def parameters(self) -> float:
        """Weights."""
        return float(sum(layer.inputs * layer.outputs for layer in self.layers))

    @property
    def flops(self) -> float:
        """Floating-point operations of a forward pass over one observation."""
        return 2.0 * sum(layer.inputs * layer.outputs * layer.rows for layer in self.layers)


class FramesWorkload(Strict):
    """What is learned from the simulators' steps."""

    kind: Literal["frames"] = Field(description="says that the question is one of simulators")
    frames: Count = Field(1, description="frames of a step: an action is repeated over them (frame skip)")
    batch: Count | None = Field(
        None, description="steps of an optimizer step, over all devices; default: nothing is learned"
    )
    epochs: Count = Field(1, description="passes of the learner over each step")


class Simulators(Strict):
    """Environments on CPU cores."""

    seconds: Positive = Field(description="mean of a step on a free core, s")
    sigma: Annotated[float, Field(ge=0, le=3)] = Field(
        0.4,
        description="standard deviation of a step's logarithm; default: of Pong and Ant (docs/frames.md)",
    )
    cores: Count = Field(description="physical cores of a node that step environments")
    threads: Count | None = Field(
        None, description="threads or processes of a node; default: as many as cores"
    )
    nodes: Count | None = Field(
        None, description="nodes without devices that step environments; default: the devices' nodes do"
    )
    each: Count = Field(1, description="environments of a thread; it steps one while others wait for actions")
    observation_bytes: NotNegative = Field(0.0, description="of an observation that the policy reads")


class Inference(Strict):
    """Where the policy acts."""

    place: Literal["shared", "apart", "cores"] = Field(
        "shared", description="on the learner's devices, on `devices` of its own, or on the simulators' cores"
    )
    devices: Count | None = Field(None, description="of `gpus`, where it is apart")
    batch: Count | None = Field(
        None, description="observations of a forward pass; default: the number that lets most steps through"
    )
    core_flops: Positive = Field(
        5.0e9, description="FLOP/s of a core in products of one observation, where cores act (assumed)"
    )


class FramesDefinition(Strict):
    """The keys of a scenario file of simulators."""

    title: str = Field("", description="the question in one line")
    model: PolicyModel | None = Field(None, description="the policy; default: random actions")
    cluster: Reference = Field(description="catalogue name, path or mapping")
    gpus: Count = Field(1, description="devices that act and learn")
    workload: FramesWorkload = Field(description="what is learned")
    environments: Simulators = Field(description="simulators on CPU cores")
    sampler: Reference = Field("sample-factory", description="how they are stepped: name, path or mapping")
    inference: Inference = Field(
        default_factory=lambda: Inference.model_validate({}), description="where the policy acts"
    )
    learner: Literal["beside", "in-turn"] = Field(
        "beside", description="whether the learner works beside the simulators, or in turn with them"
    )
    variations: dict[str, Variation] = Field(
        default_factory=dict, description="named changes to ask `whatif` about"
    )


@dataclass(frozen=True)
class FramesSetting:
    """The fixed inputs."""

    title: str
    model: PolicyModel | None
    cluster: Cluster
    workload: FramesWorkload
    environments: Simulators
    sampler: Sampler
    inference: Inference
    learner: str

    @property
    def nodes(self) -> int:
        """Nodes whose cores step environments."""
        return self.environments.nodes or self.cluster.nodes_for(self.cluster.devices)

    @property
    def cores(self) -> int:
        """Physical cores that step environments."""
        return self.nodes * self.environments.cores

    @property
    def threads(self) -> int:
        """Threads that step environments at once."""
        return self.nodes * (self.environments.threads or self.environments.cores)

    @property
    def count(self) -> int:
        """Environments."""
        return self.threads * self.environments.each

    @property
    def acting(self) -> int:
        """Devices on which the policy acts; 0: none."""
        if self.model is None or self.inference.place == "cores":
            return 0
        return self.inference.devices or self.cluster.devices

    @property
    def learning(self) -> int:
        """Devices that learn; 0: none."""
        if self.workload.batch is None:
            return 0
        return self.cluster.devices - (self.acting if self.inference.place == "apart" else 0)


def make_frames(data: Mapping[str, Any], where: str, folder: Path) -> FramesSetting:
    """Turn the mapping of a scenario of simulators into its setting.

    Args:
        data: keys and values as in a file.
        where: name of the source in errors.
        folder: base of relative paths.

    Raises:
        InputError: a wrong key or value, or an unknown name; with the key path.
    """
    written = build(FramesDefinition, data, where)
    cluster = find(clusters, written.cluster, folder, f"{where}: cluster")
    acts, work = written.inference, written.workload
    with located(f"{where}: gpus"):
        cluster = cluster.resized(written.gpus)
    if written.model is None and work.batch is not None:
        raise InputError("a policy that learns needs a model", f"{where}: workload.batch")
    if (acts.devices is not None) != (acts.place == "apart"):
        raise InputError(
            f"devices are for a policy that acts apart, and needed there; found {acts.devices} with "
            f"place: {acts.place}",
            f"{where}: inference.devices",
        )
    limit = written.gpus - (work.batch is not None)
    if acts.devices is not None and acts.devices > limit:
        raise InputError(
            f"must be at most {limit} of the {written.gpus} devices (the learner needs one), found "
            f"{acts.devices}",
            f"{where}: inference.devices",
        )
    sampler = find(samplers, written.sampler, folder, f"{where}: sampler")
    return FramesSetting(
        *(written.title, written.model, cluster, work, written.environments, sampler, acts, written.learner)
    )
