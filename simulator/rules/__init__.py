"""Rules of plans: which shapes are valid, and what a release can run."""

from simulator.levers import OVERLAP_PARTNER, ReleaseRule, insist, may_overlap
from simulator.rules.check import check
from simulator.rules.release import (
    IDLE,
    OFFERS,
    RELEASE_RULES,
    binding,
    breaks,
    check_allow,
    insisted,
    offers,
    runs,
    unoffered,
    without_default_graphs,
)
from simulator.rules.shapes import RULES, Rule, adapter_problem, balances_predictions, broken, check_workload

__all__ = [
    "IDLE",
    "OFFERS",
    "OVERLAP_PARTNER",
    "RELEASE_RULES",
    "RULES",
    "ReleaseRule",
    "Rule",
    "adapter_problem",
    "balances_predictions",
    "binding",
    "breaks",
    "broken",
    "check",
    "check_allow",
    "check_workload",
    "insist",
    "insisted",
    "may_overlap",
    "offers",
    "runs",
    "unoffered",
    "without_default_graphs",
]
