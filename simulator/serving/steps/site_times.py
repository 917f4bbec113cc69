"""Times around kernels on a server that somebody measured."""

from __future__ import annotations

from simulator.serving.engines import Engine, LayerTimes
from simulator.site import ServerSite


def at_site(times: LayerTimes, site: ServerSite, engine: Engine) -> LayerTimes:
    """Times around kernels under a site's factors; TTFT's part outside of steps stays positive."""
    host = site.factor("host")
    return times.model_copy(
        update={
            "layer_s": host * times.layer_s,
            "all_reduce_s": host * times.all_reduce_s,
            "eager_layer_s": site.factor("launches") * times.eager_layer_s,
            "sequence_s": site.factor("sequence") * times.sequence_s,
            "prefill_factor": site.factor("prefill") * times.prefill_factor,
            "first_token_s": max(times.first_token_s + site.front_s, -engine.first_token_s.value),
        }
    )
