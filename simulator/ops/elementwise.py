"""Memory passes of the kernels between matrix products.

A pass is one read or one write of one element of a tensor; bytes are passes x elements x width. The
counts follow from what each kernel reads and writes: the fused column is Megatron-LM's bias-dropout-add,
bias-GELU / SwiGLU, rotary and masked-softmax kernels; the eager column is one torch kernel per operation.
A dropout mask is one byte, half a pass at 16 bits.
"""

from __future__ import annotations

from typing import NamedTuple


class MemoryPasses(NamedTuple):
    """Passes and kernel launches of one operation, forward and backward.

    Casts are torch kernels among them whose operands differ in type, but for those to fewer bits, which
    torch vectorises (``hwmodels.kernels.memory_bound.CASTS_A_CLOCK``).
    """

    forward: float
    backward: float
    forward_launches: int = 1
    backward_launches: int = 1
    forward_casts: int = 0
    backward_casts: int = 0


VARIANTS = {"layernorm": "layer_norm", "rmsnorm": "rms_norm", "gelu": "gelu", "swiglu": "silu_mul"}
"""Names of norms and activations that calibrations distinguish."""

NORM = MemoryPasses(2.0, 5.0, 1, 2)
"""Read x, write y; read dy and x, write dx; read both again for the gradients of scale and shift."""

COMPOSITE_NORM = MemoryPasses(18.0, 39.0, 7, 14, 1, 1)
"""RMSNorm written in torch, or of eager torch before version 2.8: kernels over 32-bit values that cast,
square, average, scale, cast back and multiply; autograd runs them backwards (ATen/native/layer_norm.cpp)."""

CASTING_NORM = MemoryPasses(6.0, 11.0, 2, 4)
"""Norm over the residual cast to 32 bits: cast (1 + 2), read x, write y (2 + 1); backward read dy and x,
write dx (1 + 2 + 2), cast it (2 + 1), read dy and x again for the gradient of the scale (1 + 2)."""

NORMS = {"fused": NORM, "casts": CASTING_NORM, "composite": COMPOSITE_NORM}

NORMS_KEPT = {"fused": 1.0, "casts": 2.0, "composite": 3.0}
"""What a norm keeps for its backward pass, in 16-bit elements: its input, or a copy of it in 32 bits; a chain
of kernels also keeps what it multiplies by the weights (transformers, modeling_llama.py: LlamaRMSNorm)."""

RESIDUAL = {
    ("fused", True): MemoryPasses(3.5, 6.5, 1, 2),
    ("fused", False): MemoryPasses(3.0, 3.0, 1, 1),
    ("eager", True): MemoryPasses(5.5, 5.5, 2, 2),
    ("eager", False): MemoryPasses(3.0, 3.0, 1, 1),
}
"""Bias, dropout and residual add; by fusion and dropout. The backward pass adds the two gradient branches
(read both, write the sum) and, with dropout, applies the mask."""

GRADIENT_SUM = {False: MemoryPasses(0.0, 3.0, 0, 1), True: MemoryPasses(0.0, 1.0, 0, 0)}
"""Sum of the gradients that two readers of a tensor send back: autograd reads both and writes the sum, for
each reader after the first (torch, input_buffer.cpp). A compiler joins the sum to a neighbour, which reads
one more tensor."""

OUTPUT_SUM = {False: MemoryPasses(3.0, 0.0, 1, 0), True: MemoryPasses(1.0, 0.0, 0, 0)}
"""Sum of the outputs of shared and of routed experts, likewise (Megatron Core, moe_layer.py)."""

ROTARY = {
    "fused": MemoryPasses(2.0, 2.0, 1, 1),
    "eager": MemoryPasses(10.0, 10.0, 5, 5),
    "halves": MemoryPasses(12.0, 17.0, 20, 20),
}
"""Rotate q and k. Halves, launches of both: cosine and sine with their casts, two products, one half negated
and joined to the other, their sum, and the part that is not rotated joined to it; backward two products, a
half negated, both stacked, the sum, two slices filled with zeroes and copied into, and their sum
(Megatron-DeepSpeed, rotary_pos_embedding.py)."""

LATENT_ROTARY = MemoryPasses(4.3, 4.8, 28, 23)
"""Rotate the part of latent attention's queries and of its one key that has positions, a third of each
head, and join the parts, in torch kernels. Each rotation has 13 kernels: separate even and odd columns (2
passes over the rotated part), cosine and sine scaled and cast (6 small kernels), two products (4), a
negation and a join (3), a sum (3), a join with nothing (2); joins of query and key follow (2 over whole
heads). Backward: two products, a negation, three sums and the slices' zeroes and copies (Megatron Core
0.12, rope_utils.py: _apply_rotary_pos_emb_bshd with multi_latent_attention, and
multi_latent_attention.py)."""

GATED = {"fused": MemoryPasses(3.0, 5.0, 1, 1), "eager": MemoryPasses(5.0, 9.0, 2, 3)}
"""act(a) * b, per element of the product: reads a and b, writes one; backward reads three, writes two."""

PLAIN = {"fused": MemoryPasses(2.0, 3.0, 1, 1), "eager": MemoryPasses(2.0, 3.0, 1, 1)}
"""act(a), per element."""

SOFTMAX = {
    ("fused", True): MemoryPasses(4.5, 5.5, 2, 2),
    ("fused", False): MemoryPasses(2.0, 3.0, 1, 1),
    ("eager", True): MemoryPasses(8.5, 7.5, 4, 3),
    ("eager", False): MemoryPasses(6.0, 5.0, 3, 2),
}
"""Scale, mask, softmax and dropout over the full s x s matrix of unfused attention."""

TORCH_SOFTMAX = {True: MemoryPasses(20.5, 22.5, 6, 6, 1, 1), False: MemoryPasses(18.0, 20.0, 5, 5, 1, 1)}
"""The same where Megatron's fused kernel does not apply, by dropout. Cast to 32 bits (1 + 2), scale (2 + 2),
fill the masked (2 + 2), softmax (2 + 2), cast back (2 + 1), dropout (2.5); backward dropout (2.5), cast
(1 + 2), softmax (2 + 2 + 2), fill with zeroes (2 + 2), scale (2 + 2), cast back (2 + 1) (Megatron-LM and
Megatron-DeepSpeed, fused_softmax.py: forward_torch_softmax)."""

REDUCED_SOFTMAX = {True: MemoryPasses(7.5, 8.0, 3, 2), False: MemoryPasses(7.0, 7.0, 3, 2)}
"""The same as XLA fuses it into loops around its reductions, over 32-bit values, by dropout. Mask and cast
are part of each loop. Maximum (1), exponentials with their sum (1 + 2), division (2 + 1); backward the sum of
the product with the exponentials (1 + 2), the gradient (1 + 2 + 1); dropout writes a mask and reads it twice
(0.5 each). Read in Praxis, attentions.py: _dot_atten, and jax.nn.softmax; XLA duplicates no exponential
(instruction_fusion.cc: IsExpensive), so 4 bytes a score are kept."""

WIDE_SOFTMAX = {True: MemoryPasses(12.5, 12.5, 5, 4), False: MemoryPasses(10.0, 10.0, 4, 3)}
"""The same where torch's softmax of 16-bit scores has a 32-bit result, which is kept, by dropout. Scale (2),
mask (2), softmax (1 + 2), cast (2 + 1) and dropout (2.5); backward dropout (2.5), cast (1 + 2), softmax
(2 + 2 + 1) and scale (2) (transformers, modeling_llama.py: eager_attention_forward)."""

SOFTMAX_KERNELS = {"reductions": REDUCED_SOFTMAX, "wide": WIDE_SOFTMAX}
"""Softmax kernels by name; both keep 32-bit values beside the probabilities."""

FUSED_SOFTMAX_MULTIPLE = 4
"""Megatron's fused softmax needs a multiple of four matrices of scores, sequences times heads of a rank
(fused_softmax.py: is_kernel_available)."""

SPLIT_HEADS = {"fused": MemoryPasses(2.0, 2.0, 1, 1), "eager": MemoryPasses(4.0, 4.0, 3, 3)}
"""Copies that bring heads next to each other and back, per element of the query, key and value."""

JOIN_HEADS = {"fused": MemoryPasses(0.0, 0.0, 0, 0), "eager": MemoryPasses(0.0, 4.0, 0, 2)}
"""Beside fused attention, which needs no copy of heads: autograd stacks the gradients of query, key and
value and copies them into the projection's layout. Per element of the three."""

BATCH_FIRST = MemoryPasses(2.0, 2.0, 4, 4)
"""Copies of query, key, value and output between layouts with the sequence and with the batch first."""

CONVOLUTION = MemoryPasses(2.0, 5.0, 1, 2)
"""Causal convolution and activation over a few tokens, per channel: read and write; backward reads the
gradient and the input and writes one, and reads both again for the gradient of its weights."""

GATED_NORM = MemoryPasses(3.0, 5.0, 1, 2)
"""Norm of y times act(z): read both, write one; backward reads three, writes two, and sums the scale's
gradient in the same kernel (mamba_ssm, layernorm_gated.py; flash-linear-attention, fused_norm_gate.py)."""

SCAN_GATED_NORM = MemoryPasses(4.0, 9.0, 1, 3)
"""The same where Mamba-2's scan gates its output. Forward: the scan also reads z and writes its output before
the gate (1 + 1), the norm reads and writes (1 + 1). Backward: the norm reads two and writes one; a kernel of
the scan reads x, z, output and gradient and writes the gradients of z and of the output (4 + 2; mamba_ssm,
ssd_combined.py without rmsnorm_weight, as Megatron Core's mamba_mixer.py calls it)."""

OUTPUT_GATE = MemoryPasses(3.0, 5.0, 1, 1)
"""Attention's output times the sigmoid of a gate: read both, write one; backward reads three, writes two."""

APPEND = MemoryPasses(2.0, 0.0, 1, 0)
"""Write new keys and values into the cache: read and write."""

RESIDUAL_NORM = MemoryPasses(4.0, 7.0, 1, 2)
"""Residual sum and norm in one kernel, as serving engines run them: read both branches, write
sum and norm."""

DROPOUT = 2.5
"""Passes of dropout alone, forward or backward: read, write and the mask."""

COPY = 2.0
"""Passes of a copy: read and write."""

BIAS_GRADIENT = MemoryPasses(0.0, 1.0, 0, 1)
"""Sum of the output's gradient over the tokens, per element of it."""

EXPERT_BIAS = MemoryPasses(14.0, 20.0, 2, 6, 2, 2)
"""Bias of the experts' down projection, times each copy's probability, per element of their output. A
probability is 32 bits wide, and so is what follows: product (writes 2 passes), sum (3 + 2), join of the
experts' rows (2 + 2), cast (2 + 1); backward cast (1 + 2), the output's part cast (2 + 1) and joined (1 + 1),
two products with the gradient (2 + 2 each) and their sums (2 each). Launches of one expert (Megatron Core,
experts.py: TEGroupedMLP._apply_bias)."""

EXPERT_SCORES = MemoryPasses(10.0, 18.0, 3, 5, 1, 1)
"""Weighting of the experts' outputs by torch kernels, per element of a copy, in 32 bits: cast (1 + 2),
product (2 + 2), cast (2 + 1); backward cast (1 + 2), product with the scores (2 + 2), product with the output
(4 + 2) and its sum (2), cast (2 + 1) (torchtitan, models/moe: MoE.forward)."""

EXPERT_SCORES_KEPT, EXPERT_SCORES_PASSING = 4.0, 14.0
"""Bytes an element that the weighting keeps, its 32-bit output, and that its backward kernels hold beside it:
the gradient in 16 and 32 bits, and both products."""

NARROW_INPUT = MemoryPasses(1.5, 1.5, 1, 1)
"""Cast of an activation's inputs to the 8 bits in which they are kept, and back, per element of them
(Megatron Core, fusions/fused_bias_swiglu.py: fp8_input_store)."""

CLAMP = MemoryPasses(8.0, 10.0, 3, 4)
"""Limits of a gated activation's two inputs before the fused kernel, per element of its output: clamp both
(1 + 1 each) and join them (2 + 2); backward part and clamp the gradient (3 each) and join it (2 + 2; Megatron
Core, fused_bias_geglu.py: weighted_bias_quick_geglu_impl)."""

CROSS_ENTROPY = {
    "fused": MemoryPasses(2.0, 2.0, 3, 2),
    "fused-32": MemoryPasses(7.0, 7.0, 4, 3, 1),
    "eager": MemoryPasses(19.0, 7.0, 8, 4, 1),
    "torch": MemoryPasses(4.0, 8.0, 2, 2),
    "torch-held": MemoryPasses(4.0, 8.0, 2, 2),
    "torch-16": MemoryPasses(2.0, 4.0, 2, 2),
    "chunked": MemoryPasses(4.0, 8.0, 2, 2),
    "log-probabilities": MemoryPasses(27.0, 29.0, 8, 8, 1),
    "native": MemoryPasses(11.0, 7.0, 3, 2),
}
"""Loss over the vocabulary, in passes of 2 bytes per logit. Eager: cast to 32 bits (read 2, write 4 bytes),
maximum, subtract, exponentiate, sum and divide over 4-byte values, all but maximum and sum in place (38
bytes); backward scales in place and casts back (14 bytes; Megatron-LM, cross_entropy.py).
Fused-32: the fused kernel over logits that the model casts to 32 bits (3 + 4; backward 4 + 3).
Native: Megatron Core's compiled kernels of the same loss (fused_cross_entropy.py): cast with maximum (1 + 2),
subtraction, exponential and sum (2 + 2), division (2 + 2); backward scales (2 + 2) and casts (2 + 1).
Torch: log-softmax reads and writes 4-byte values; backward fills the gradient of the negative log-likelihood
and combines it with the log-softmax; torch-16 the same over 16-bit values.
Log-probabilities: cast (2 + 4 bytes), temperature (4 + 4), maximum (4), difference (4 + 4), exponential
(4 + 4), sum (4), product with the logit (8 + 4) and its sum (4); backward cast, temperature, difference,
exponential, product with the gradient (4 + 4) and temperature again, and two casts (4 + 2; prime-rl,
lm_head.py: _ChunkedLogProbEntropyFn)."""

CORRECTED_SOFTMAX = MemoryPasses(0.0, 4.0, 0, 1)
"""A softmax scaled by its rank's own sum is scaled again, in 32 bits, once the sum over all ranks is known
(4 + 4 bytes; in passes of 2 bytes)."""

EARLY_SOFTMAX = MemoryPasses(3.0, 4.0, 1, 1)
"""The same, and before that a cast of it for the product of the input gradient (4 + 2)."""

WIDE_INPUT = MemoryPasses(7.0, 0.0, 2, 0)
"""Hidden states that arrive in 32 bits beside the gradient of the loss are copied and cast (4 + 4, 4 + 2)."""

CAST_LOGITS = MemoryPasses(3.0, 3.0, 1, 1, 1)
"""Torch's loss takes 32-bit logits: read 2 and write 4 bytes, and back; in passes of 2 bytes."""
