"""Vision towers in serving: encoder time beside prompts, and pools of role ``encoder``."""

from simulator.serving.encoders.arrays import EncodingArrays
from simulator.serving.encoders.pictures import Pictures, pictures_of, tower_bytes
from simulator.serving.encoders.pool import EncoderPool, check_encoders, encoder_pool
from simulator.serving.encoders.steps import encoding_costs
from simulator.serving.encoders.times import EncoderTimes

__all__ = [
    "EncoderPool",
    "EncoderTimes",
    "EncodingArrays",
    "Pictures",
    "check_encoders",
    "encoder_pool",
    "encoding_costs",
    "pictures_of",
    "tower_bytes",
]
