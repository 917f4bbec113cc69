"""Search over a cluster of groups: which carries which stages or replicas, with how much work and state."""

from planner.mixed.search import MixedPlan, MixedSearch, search_mixed

__all__ = ["MixedPlan", "MixedSearch", "search_mixed"]
