"""Settings of a process that runs one command; imported before anything heavy."""

from __future__ import annotations

import gc
import os

# Looking for pydantic's plugins reads the metadata of all installed packages.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# Imports allocate 300,000 long-lived objects; Python's default of 700 would collect over and over.
gc.set_threshold(100_000, 20, 50)
