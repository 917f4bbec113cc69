"""Which groups of rows have effects of their own."""

from types import SimpleNamespace

import pytest

from evidence.fits.engine_levels import same_servers
from evidence.fits.served_rows import FIRST, REST, Group

OLD, NEW = (Group(name, "latent-experts", "fp8", "cdna3") for name in ("sglang-0.5.9", "sglang-0.5.12"))


def rows(kind=REST, device="mi300x", tensor=8, counts=True):
    """Rows of a server."""
    pool = SimpleNamespace(tensor=tensor, data=1, expert=1, pipeline=1)
    cluster = SimpleNamespace(device=SimpleNamespace(name=device))
    setup = SimpleNamespace(model=SimpleNamespace(name="deepseek-v3"), cluster=cluster, pool=pool)
    return SimpleNamespace(kind=kind, counts=counts, setup=setup)


def test_versions_of_one_server_have_times_of_their_own():
    level = same_servers({OLD: [rows()], NEW: [rows()]})
    assert level.share(OLD) == OLD and level.share(NEW) == NEW
    assert level.of(0) > 0.0 == level.of(1)


@pytest.mark.parametrize(
    "other", [rows(device="mi355x"), rows(tensor=4), rows(kind=FIRST), rows(counts=False)]
)
def test_versions_on_other_servers_say_nothing_of_each_other(other):
    level = same_servers({OLD: [rows()], NEW: [other]})
    assert level.share(OLD) is level.share(NEW) is None
