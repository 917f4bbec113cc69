"""The operations that a profile run measures: one a file, found through this registry."""

from __future__ import annotations

from profiles.measure.bench import MeasuredOperation
from profiles.measure.operations.activations import GELU, SILU_MUL
from profiles.measure.operations.attention import ATTENTION, ATTENTION_BACKWARD
from profiles.measure.operations.copies import COPY, FROM_HOST, FROM_STORAGE, TO_HOST, TO_STORAGE
from profiles.measure.operations.cross_entropy import CROSS_ENTROPY
from profiles.measure.operations.decode import DECODE
from profiles.measure.operations.embedding import EMBEDDING
from profiles.measure.operations.gemm import GEMM, GEMM_LAYOUTS
from profiles.measure.operations.launch import LAUNCH_EAGER, LAUNCH_GRAPH
from profiles.measure.operations.moe import MOE, MOE_BACKWARD
from profiles.measure.operations.norms import LAYER_NORM, RMS_NORM
from profiles.measure.operations.optimizer import ADAM
from profiles.measure.operations.residual import ADD
from profiles.measure.operations.rope import ROPE
from profiles.measure.operations.scaled_gemm import QUANTIZE, SCALED_GEMM
from profiles.measure.operations.sustained import SUSTAINED

OPERATIONS: dict[str, MeasuredOperation] = {
    operation.name: operation
    for operation in (
        GEMM,
        GEMM_LAYOUTS,
        SCALED_GEMM,
        QUANTIZE,
        ATTENTION,
        ATTENTION_BACKWARD,
        DECODE,
        MOE,
        MOE_BACKWARD,
        RMS_NORM,
        LAYER_NORM,
        GELU,
        SILU_MUL,
        ROPE,
        ADD,
        EMBEDDING,
        CROSS_ENTROPY,
        ADAM,
        COPY,
        FROM_HOST,
        TO_HOST,
        FROM_STORAGE,
        TO_STORAGE,
        LAUNCH_GRAPH,
        LAUNCH_EAGER,
        SUSTAINED,
    )
}
