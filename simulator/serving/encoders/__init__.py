"""Vision towers in serving: encoder time beside prompts, and pools of role ``encoder``."""

from simulator.serving.encoders.arrays import EncodingArrays
from simulator.serving.encoders.pool import EncoderPool, check_encoders, encoder_pool
from simulator.serving.encoders.steps import encoding_costs
from simulator.serving.encoders.times import EncoderTimes, tower_bytes

__all__ = [
    "EncoderPool",
    "EncoderTimes",
    "EncodingArrays",
    "check_encoders",
    "encoder_pool",
    "encoding_costs",
    "tower_bytes",
]
