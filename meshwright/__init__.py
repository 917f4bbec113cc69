"""Meshwright: predict, search and explain training and serving plans on GPU clusters."""

__version__ = "0.1.0"
