"""Runs of weeks: faults, recovery, checkpoints and stragglers around the step of one plan."""
