"""Prediction of plans: models, plans, costs, memory, schedules, the event engine."""
