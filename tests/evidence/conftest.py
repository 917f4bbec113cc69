"""The command line, as in tests of `meshwright`."""

from tests.meshwright.conftest import refused, run

__all__ = ["refused", "run"]
