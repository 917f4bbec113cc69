"""Scenarios that ship with Meshwright: YAML files, each runnable by its name."""
