"""What all plans of one question share: the model, the cluster, the workload and the framework."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwmodels.cluster import Cluster
from hwmodels.kernels import KernelModel
from simulator.costs.variation import slowest_of
from simulator.frameworks import Framework
from simulator.models import Model
from simulator.plan import Plans
from simulator.workload import Training


@dataclass(frozen=True)
class Setting:
    """The fixed side of a cost computation; plans are the varying side."""

    model: Model
    cluster: Cluster
    training: Training
    framework: Framework

    @cached_property
    def kernels(self) -> KernelModel:
        """Kernel times of the cluster's device in steady work, as the framework's libraries reach them.

        The forms alone: what single points lie above them is in part the burst before clocks settle.
        """
        return self.cluster.device.kernels.sustained().uncorrected().using(self.framework.library)

    def tokens(self, plans: Plans) -> np.ndarray:
        """Tokens of a micro batch that one context-parallel rank holds, shape (plans,)."""
        return plans.micro_batch * self.training.seq_len / plans.context

    @cached_property
    def pace(self) -> float:
        """Kernel time of the slowest device over that of the average one."""
        return slowest_of(self.cluster.devices)

    @property
    def host_seconds_per_kernel(self) -> float:
        """Host time of a kernel beside its time on the device."""
        given = self.framework.host_seconds_per_kernel
        if given is not None:
            return given * self.cluster.host_slowdown
        launch = self.kernels.launch_seconds
        # A CPU's kernels are timed with the call that starts them.
        if self.launches_ahead:
            return launch * self.cluster.host_slowdown
        return max(launch - float(self.kernels.memory_bound(0.0)), 0.0)

    @property
    def captures_layers(self) -> bool:
        """Whether attention, router and shared experts of a layer with experts are replayed from graphs."""
        return self.framework.graphs == "slow-hosts" and self.cluster.host_slowdown > 1.0

    @property
    def launches_ahead(self) -> bool:
        """Whether the host launches kernels while the device still runs others; a CPU is its own host."""
        return self.framework.launches_ahead and self.cluster.device.generation != "cpu"

    @property
    def linear_dtype(self) -> str:
        """Number format of the matrix products of linear layers."""
        return self.training.precision

    @property
    def core_dtype(self) -> str:
        """Number format of attention and of the output layer, which stay at 16 bits under fp8 and fp4."""
        low_precision = self.training.precision in ("fp8", "mxfp8", "nvfp4")
        return "bf16" if low_precision else self.training.precision

    @property
    def mtp_layers(self) -> int:
        """Layers of multi-token prediction that the step trains."""
        return self.model.mtp_layers if self.framework.trains_mtp else 0

    @property
    def width(self) -> int:
        """Bytes of one activation element."""
        return self.training.activation_bytes

    @property
    def operand_width(self) -> int:
        """Bytes of one element of a linear layer's input or of its output's gradient, as products read them.

        Under fp8 they are cast before they are gathered (Transformer Engine's quantised all-gather,
        torchao's float8 tensor parallelism).
        """
        return 1 if self.training.precision in ("fp8", "mxfp8") else self.width

    @property
    def dropout(self) -> bool:
        """Whether dropout kernels run."""
        return self.framework.dropout if self.training.dropout is None else self.training.dropout
