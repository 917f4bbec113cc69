"""Training frameworks: one YAML file each."""

from simulator.frameworks.default import adapter_rule, default_framework, default_name
from simulator.frameworks.framework import Framework, frameworks

__all__ = ["Framework", "adapter_rule", "default_framework", "default_name", "frameworks"]
