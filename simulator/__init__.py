"""Predicts what a plan does: models, plans, costs, memory, schedules, the event engine."""
