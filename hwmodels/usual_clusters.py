"""Default cluster of each device, by catalogue names."""

from collections.abc import Mapping
from pathlib import Path

from core.cache import read_shipped

USUAL: Mapping[str, str] = read_shipped(Path(__file__).with_suffix(".yaml"))
