"""Other people's measurements as point files: one source format a file, found through this registry."""

from __future__ import annotations

from profiles.importers.aiconfigurator import AICONFIGURATOR
from profiles.importers.common import Importer, ImportOptions
from profiles.importers.kineto import KINETO
from profiles.importers.nccl_tests import NCCL_TESTS
from profiles.importers.run import ImportResult, import_points
from profiles.importers.vidur import VIDUR

IMPORTERS: dict[str, Importer] = {
    importer.name: importer for importer in (NCCL_TESTS, AICONFIGURATOR, VIDUR, KINETO)
}

__all__ = ["IMPORTERS", "ImportOptions", "ImportResult", "Importer", "import_points"]
