"""Linear layers of a block: forward, input-gradient and weight-gradient products."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from simulator.costs.setting import Setting
from simulator.costs.work import Work
from simulator.ops import elementwise as passes

COLD_OPERANDS = {"ampere": 1.046, "hopper": 1.02, "blackwell": 1.012}
"""Time of a product whose operands and result all come from and go to memory, as in a training step, over one
whose activations a benchmark finds in the cache: median ratio of aiconfigurator's SGLang tables (everything
rotates) to its TensorRT-LLM tables (weights rotate) over the shapes of m >= 1024, n and k >= 1536 that both
hold; 548 shapes on A100, 2,166 each on H100 and B200, bf16."""

LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")
"""Number formats that operands are cast to before each product."""


@dataclass
class Linears:
    """Linear layers over the same tokens, with what each product takes.

    ``role`` of a layer is ``column`` (its output is sharded over tensor-parallel ranks), ``row`` (its input
    is) or ``down`` (neither). The seconds of column and row products are kept apart because tensor-parallel
    communication hides behind them.

    ``groups`` is how many experts do the same with their own ``tokens`` and weights, side by side on the
    device, in ``launches`` kernels a product.
    """

    setting: Setting
    tokens: np.ndarray
    groups: np.ndarray | float = 1.0
    launches: np.ndarray | float = 1.0
    kind: str = "gemm"
    forward: Work = field(default_factory=Work)
    backward_input: Work = field(default_factory=Work)
    backward_weight: Work = field(default_factory=Work)
    products: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    added: list[tuple[str, np.ndarray | float, np.ndarray | float, str]] = field(default_factory=list)

    def add(
        self,
        role: str,
        outputs: np.ndarray | float,
        inputs: np.ndarray | float,
        dtype: str = "",
        bias: bool = True,
    ) -> None:
        """Append a layer with weights of shape (outputs, inputs), sizes on one rank.

        ``bias`` says whether it has one where the model's linear layers do.
        """
        setting, kernels = self.setting, self.setting.kernels
        dtype = dtype or setting.linear_dtype
        self.added.append((role, outputs, inputs, dtype))
        tokens, n, k, groups = np.broadcast_arrays(self.tokens, outputs, inputs, self.groups)
        cold = COLD_OPERANDS.get(setting.cluster.device.generation, 1.0)
        forward = cold * kernels.batched_gemm(groups, tokens, n, k, dtype, "forward")
        dgrad = cold * kernels.batched_gemm(groups, tokens, k, n, dtype, "dgrad")
        wgrad = cold * kernels.batched_gemm(groups, n, k, tokens, dtype, "wgrad")
        wgrad = wgrad + self._accumulate(groups * n * k)
        self.forward.add(self.kind, forward, self.launches)
        self.backward_input.add(self.kind, dgrad, self.launches)
        self.backward_weight.add(self.kind, wgrad, self.launches + (1 if self._accumulates else 0))
        self._keep(role, "forward", forward)
        self._keep(role, "dgrad", dgrad)
        self._keep(role, "wgrad", wgrad)
        if bias and setting.model.bias and setting.framework.elementwise == "eager":
            count, size = passes.BIAS_GRADIENT, setting.width * tokens * n
            moved = count.backward * size * groups
            self.backward_weight.add_bytes(kernels, "elementwise", moved, count.backward_launches)
        if dtype in LOW_PRECISION:
            size = setting.width * setting.framework.cast_passes[dtype] * groups
            weights = n * k if setting.framework.casts_weights else 0.0
            for work, read in ((self.forward, k * tokens), (self.backward_input, n * tokens)):
                work.add_bytes(kernels, "elementwise", size * (read + weights), variant="quantize_fp8")

    def slicing(self, role: str, product: str, slices: np.ndarray) -> np.ndarray:
        """Seconds that a product of one role takes longer when its tokens are cut into so many calls.

        Slices read all weights again and fill fewer rows of tiles. They lie on several streams, so that they
        fill the multiprocessors together, as one kernel of as many products does.

        Args:
            role: of the layers.
            product: ``forward`` or ``dgrad``.
            slices: calls, shape (plans,); 1 where the product stays whole.
        """
        kernels = self.setting.kernels
        longer = np.zeros(np.shape(self.tokens))
        for each, outputs, inputs, dtype in self.added:
            if each != role:
                continue
            n, k = (outputs, inputs) if product == "forward" else (inputs, outputs)
            whole = kernels.gemm(self.tokens, n, k, dtype)
            sliced = kernels.batched_gemm(slices, self.tokens / slices, n, k, dtype)
            longer = longer + np.maximum(sliced - whole, 0.0)
        return longer * COLD_OPERANDS.get(self.setting.cluster.device.generation, 1.0)

    def _accumulate(self, elements: np.ndarray) -> np.ndarray | float:
        """Seconds to add a fresh weight gradient to the accumulated one, where the product does not."""
        if not self._accumulates:
            return 0.0
        return self.setting.kernels.memory_bound(
            (self.setting.width + 2 * self.setting.framework.gradient_bytes) * elements
        )

    @property
    def _accumulates(self) -> bool:
        """Whether every micro batch adds its gradient in a kernel of its own."""
        framework = self.setting.framework
        return framework.adds_first_gradient and not framework.fused_accumulation

    def _keep(self, role: str, product: str, seconds: np.ndarray) -> None:
        self.products[role, product] = self.products.get((role, product), 0.0) + seconds

    def seconds(self, role: str, product: str) -> np.ndarray:
        """Seconds of one product summed over the layers of one role."""
        return self.products.get((role, product), np.zeros(np.shape(self.tokens)))
