"""Scenarios with measured figures: read, predicted as `simulate` does, and shown."""
