"""Attention with a fixed-size state instead of a cache: Mamba-2, gated DeltaNet and similar layers."""

from core.loading import Strict
from simulator.models.parts import NotNegative, Positive

STATE_BYTES = 4
"""Bytes of one element of a state, which stays in 32 bits (mamba_ssm, flash-linear-attention)."""


class LinearAttention(Strict):
    """A layer that scans its sequence in chunks and hands a state from chunk to chunk.

    Dao and Gu 2024 (Mamba-2, arXiv 2405.21060); Yang et al. 2024 (gated DeltaNet, arXiv 2412.06464).
    """

    heads: Positive
    """Value heads; every head has its own state."""
    value_dim: Positive
    """Width of a value head (Mamba's head dimension)."""
    key_heads: Positive
    """Heads of queries and keys (Mamba's groups), which value heads share."""
    key_dim: Positive
    """Width of a query or key head (Mamba's state size)."""
    head_gates: Positive = 1
    """Scalars of each value head and token: one step (Mamba), or decay and write strength (DeltaNet)."""
    head_parameters: NotNegative = 2
    """Parameters of each value head beside weights: decay, bias of the step, and Mamba's skip."""
    convolution: Positive = 4
    """Width of the causal convolution over queries, keys and values."""
    convolution_bias: bool = False
    norm_per_head: bool = True
    """Whether all heads share the weights of the norm before the output projection."""
    chunk: Positive = 64
    """Tokens that are scanned together."""
    gate_rank: NotNegative = 0
    """Width through which the output gate, and with ``channel_gates`` the decay, are projected; 0: none."""
    channel_gates: bool = False
    """Whether each channel of a key decays by its own gate, not a head as one (Kimi Delta Attention)."""
    delta: bool = False
    """Whether states change by the delta rule, which solves a triangular system in every chunk."""

    @property
    def value_width(self) -> int:
        """Width of all value heads."""
        return self.heads * self.value_dim

    @property
    def channels(self) -> int:
        """Width of queries, keys and values, which the convolution passes over."""
        return 2 * self.key_heads * self.key_dim + self.value_width

    @property
    def state_bytes(self) -> int:
        """State of one sequence and layer, B, including the convolution's last inputs."""
        states = STATE_BYTES * self.heads * self.key_dim * self.value_dim
        return states + 2 * self.channels * (self.convolution - 1)
