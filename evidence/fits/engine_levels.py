"""Effects of which an engine's constants are sums, with their spreads; see `profiles/fitting/pooled.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from evidence.fits.left_out_errors import CONSTANTS
from evidence.fits.served_rows import REST, Group, Rows
from evidence.serving.case import Setup
from profiles.fitting.pooled import SharedEffect


def _spread(decode: float, prompts: float, launches: float) -> tuple[float, ...]:
    """Spreads of a level: of what each step has, of what prompts add, and of launches."""
    by_name = {"prefill_factor": prompts, "first_token_s": prompts, "eager_layer_s": launches}
    return tuple(by_name.get(name, decode) for name in CONSTANTS)


LEVELS = (
    SharedEffect("all", lambda group: 0, 0.5),
    SharedEffect("engine", lambda group: group.family, 0.5),
    SharedEffect("layers", lambda group: (group.layers, group.vendor), _spread(0.5, 0.5, 0.8)),
    SharedEffect("format", lambda group: group.format, 0.2),
    SharedEffect("generation", lambda group: group.generation, 0.3),
    SharedEffect(
        "format, generation",
        lambda group: (group.format, group.generation),
        (0.3,) + (0.0,) * (len(CONSTANTS) - 1),
    ),
    SharedEffect(
        "engine, layers", lambda group: (group.family, group.layers, group.vendor), _spread(0.3, 0.5, 0.8)
    ),
    SharedEffect(
        "engine, format", lambda group: (group.family, group.format, group.vendor), _spread(0.3, 0.5, 0.3)
    ),
    SharedEffect("version", lambda group: (group.engine, group.vendor), 0.03),
    SharedEffect("own", lambda group: group, 0.03),
)
"""Effects of which a constant is a sum. Versions differ by a tenth of what engines do: with wider spreads the
model of a version's rows passes for the version (0.3 for 0.03: TPOT 10.0 for 9.2 % on models left out). What
kernels of a format miss on a generation of devices is in `layer_s` alone. Engines differ more in prompts, and
in launches, whose number is that of a layer's kernels, than in decode steps."""


SAME_SERVER = 1.0
"""Spread of a version's own time a layer, where a server of the same model, GPU and degrees ran under another
version too: errors of kernels cancel, so the rows say how versions differ. The root mean
square of what the rows say is 0.85 (22 groups, most under 0.5; SGLang 0.5.9 takes 160 us a layer more than
0.5.12 on MI300X)."""


def same_servers(rows: Mapping[Group, Sequence[Rows]]) -> SharedEffect:
    """What is a group's own where another version of its engine ran one of its servers."""
    ran: dict[Hashable, set[Group]] = defaultdict(set)
    for group, same in rows.items():
        for one in same:
            if one.counts and one.kind == REST:
                ran[group.family, *group[1:], *server_of(one.setup)].add(group)
    paired = {group for groups in ran.values() if len(groups) > 1 for group in groups}
    return SharedEffect(
        "same servers",
        lambda group: group if group in paired else None,
        (SAME_SERVER,) + (0.0,) * (len(CONSTANTS) - 1),
    )


def server_of(setup: Setup) -> tuple[Hashable, ...]:
    """Model, GPU and degrees of a replica."""
    pool = setup.pool
    return setup.model.name, setup.cluster.device.name, pool.tensor, pool.data, pool.expert, pool.pipeline
