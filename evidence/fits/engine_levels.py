"""Effects of which an engine's constants are sums, with their spreads; see `evidence/fits/pooled.py`."""

from __future__ import annotations

from evidence.fits.left_out_errors import CONSTANTS
from evidence.fits.pooled import SharedEffect


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
in launches, whose number is that of a layer's kernels, than in decode steps. A time a layer of their own for
versions that ran one server (model, GPU, degrees) gains in the sample and on GPUs left out, and loses on
models left out (7.6 for 7.2 %): presets whose entries need it say so, and keep them
(SGLang on MI300X)."""
