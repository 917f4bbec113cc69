"""The importers by name; an importer is one file and one entry here."""

from __future__ import annotations

from profiles.importers.aiconfigurator import AICONFIGURATOR
from profiles.importers.common import Importer
from profiles.importers.kineto import KINETO
from profiles.importers.nccl_tests import NCCL_TESTS
from profiles.importers.vidur import VIDUR

IMPORTERS: dict[str, Importer] = {
    importer.name: importer for importer in (NCCL_TESTS, AICONFIGURATOR, VIDUR, KINETO)
}
