"""Lets tests import `benchmarks`, which is not installed; installed packages come first."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
