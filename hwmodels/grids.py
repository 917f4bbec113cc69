"""Carbon intensity of electricity by region."""

from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from core.cache import read_shipped
from core.errors import named
from core.loading import Strict, build

FILE = Path(__file__).with_name("grids.yaml")
JOULES_PER_KWH = 3.6e6


class PowerGrid(Strict):
    """Electricity at a region, means of a year."""

    location: str
    grams_per_kwh: Annotated[float, Field(ge=0, le=2000)]
    """CO2 equivalent of the grid's electricity, g/kWh."""

    def grams(self, joules: float) -> float:
        """CO2 equivalent of an energy, g."""
        return joules / JOULES_PER_KWH * self.grams_per_kwh


class Grids(Strict):
    """A published table of regions."""

    source: str
    year: int
    regions: dict[str, PowerGrid]

    def get(self, region: str, where: str = "") -> PowerGrid:
        """The grid of a region.

        Raises:
            UnknownNameError: the table has no such region.
        """
        return named("region", region, self.regions, where)


@cache
def grids() -> Grids:
    """The table that ships."""
    return build(Grids, read_shipped(FILE), str(FILE))
