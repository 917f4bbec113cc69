"""Reinforcement learning of small policies in simulators: cores that step, devices that act and learn."""
