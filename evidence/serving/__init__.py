"""Measured serving runs: readers of their files, predictions from configurations alone, and errors."""
