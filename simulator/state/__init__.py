"""Classes of state as a plan writes them: where they lie, over what they are sharded, how they move."""

from simulator.state.policy import PLAIN, POLICY_FIELDS, StatePolicy

__all__ = ["PLAIN", "POLICY_FIELDS", "StatePolicy"]
