"""Training frameworks: one YAML file each."""

from simulator.frameworks.framework import Framework, frameworks

__all__ = ["Framework", "frameworks"]
