"""Encoders in serving: of images beside prompts, or in pools of role ``encoder``; of prompts."""

from simulator.serving.encoders.arrays import EncodingArrays
from simulator.serving.encoders.pool import EncoderPool, check_encoders, encoder_pool
from simulator.serving.encoders.prompts import PromptArrays, PromptSteps, check_encoder, encoder_table
from simulator.serving.encoders.steps import encoding_costs
from simulator.serving.encoders.times import EncoderTimes, tower_bytes

__all__ = [
    "EncoderPool",
    "EncoderTimes",
    "EncodingArrays",
    "PromptArrays",
    "PromptSteps",
    "check_encoder",
    "check_encoders",
    "encoder_pool",
    "encoder_table",
    "encoding_costs",
    "tower_bytes",
]
