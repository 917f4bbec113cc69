"""States of KV: where it lives, and how much of it attention reads; one entry for each."""

from simulator.serving.kv_states.arrays import AttentionApart
from simulator.serving.kv_states.base import AttentionDevices, ReplicaFacts, State
from simulator.serving.kv_states.pool import AttentionReplicas, attention_devices, check_attention
from simulator.serving.kv_states.steps import StateSteps, make_state, states, with_state

__all__ = [
    "AttentionApart",
    "AttentionDevices",
    "AttentionReplicas",
    "ReplicaFacts",
    "State",
    "StateSteps",
    "attention_devices",
    "check_attention",
    "make_state",
    "states",
    "with_state",
]
