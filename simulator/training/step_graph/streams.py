"""The streams of a rank in training, and the parts that its tasks count for."""

from __future__ import annotations

from simulator.engine.graph import Stream
from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    OFFLOAD,
    OUTPUT_FORWARD,
    OUTPUT_WEIGHT,
    RELOAD,
    WEIGHT,
)

COMPUTE = Stream("compute", "compute")
TENSOR = Stream("tensor")
EXPERT = Stream("expert")
# Sends take two of NCCL's 16 to 24 channels, host copies run on copy engines: they slow nothing. Of
# context-parallel communication only the sends of ring attention run beside kernels.
CONTEXT = Stream("context", contends=False)
PIPELINE = Stream("pipeline", contends=False)
DATA = Stream("data")
OUTPUT = Stream("output")
"""The collectives of a vocabulary-parallel output layer."""
TO_HOST = Stream("to host", "copy out", contends=False)
FROM_HOST = Stream("from host", "copy in", contends=False)
HOST = Stream("host", contends=False)
"""The CPUs of a node, where they update state."""
STORAGE = Stream("storage", contends=False)
"""SSDs and the file system, where state lies there."""
SYNC = Stream("sync", contends=False)
"""Outer exchanges of replica groups, in the mean of the steps between them."""
STREAMS = (COMPUTE, TENSOR, CONTEXT, EXPERT, PIPELINE, DATA, OUTPUT, TO_HOST, FROM_HOST, HOST, STORAGE, SYNC)

PASS = "compute"
"""Part of a pass that runs as one task; else a part is a kernel class or one of these."""
RECOMPUTE, OUTPUT_LAYER = "recompute", "output_layer"
GRADIENTS, PARAMETERS = "gradients", "parameters"
COMMUNICATION = (
    *(stream.name for stream in (TENSOR, CONTEXT, EXPERT, OUTPUT, PIPELINE)),
    *(GRADIENTS, PARAMETERS),
    *(stream.name for stream in (TO_HOST, FROM_HOST, HOST, STORAGE, SYNC)),
)
"""Parts that are communication; a moment in which a rank waits for several counts for the first of them."""

TIED = "tied embedding"
"""Name of the segment that reduces the tied embedding's gradient between the first and the last stage."""

NAMES = {
    FORWARD: "forward",
    BACKWARD: "backward",
    WEIGHT: "weight gradient",
    OFFLOAD: "offload",
    RELOAD: "reload",
    OUTPUT_FORWARD: "output forward",
    OUTPUT_WEIGHT: "output weight gradient",
}
"""Names of the items of a step: passes of a micro batch, and copies of its activations."""
