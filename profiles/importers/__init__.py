"""Other people's measurements as point files: one source format a file, found through a registry."""

from __future__ import annotations

from profiles.importers.common import Importer, ImportOptions
from profiles.importers.registry import IMPORTERS
from profiles.importers.run import ImportResult, import_points

__all__ = ["IMPORTERS", "ImportOptions", "ImportResult", "Importer", "import_points"]
