"""Settings of a process that runs one command; imported before anything heavy."""

from __future__ import annotations

import gc
import os

command = ""
"""The command line that this process runs, as typed; empty where Python asks."""

# Looking for pydantic's plugins reads the metadata of all installed packages.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

# README's plan allocates 110,000 objects that live to its end; Python's default of 700 would collect over and
# over, and one collection of them all takes 30 ms.
gc.set_threshold(200_000, 20, 50)
