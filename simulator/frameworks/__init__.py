"""Training frameworks: one YAML file each."""

from simulator.frameworks.default import default_framework
from simulator.frameworks.framework import Framework, frameworks

__all__ = ["Framework", "default_framework", "frameworks"]
