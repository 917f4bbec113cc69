"""Libraries that dispatch tokens to experts inside a domain."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.models import LayerKind
from simulator.ops.experts import arrivals
from simulator.plan import Plan, Plans
from simulator.training.layer import layer_ops
from simulator.training.work import price_passes

EXPERTS = LayerKind(experts=True)
TOKENS = 4 * 4096


def exchanges(make_setting, model, library):
    """Seconds of a forward exchange on 8 B200 by op, and the copies that a rank combines."""
    setting = make_setting(model, devices=8, cluster="dgx-b200", seq_len=4096, framework="megatron-bridge")
    setting = setting.with_choices(dispatcher="flex", dispatcher_library=library)
    plans = Plans.of(Plan.model_validate({"data": 8, "expert": 8, "micro_batch": 4}))
    priced = price_passes(setting, layer_ops(setting, plans, EXPERTS))[0]
    times = {
        entry.op.name: float(np.ravel(entry.seconds)[0])
        for entry in priced
        if entry.op.kind == "expert" and not entry.op.gradient
    }
    copies = TOKENS * float(np.ravel(arrivals(setting.rank(plans), setting.model.moe))[0])
    return times, copies


def test_narrow_copies_bound_hybridep_s_combination(make_setting):
    """2,048 wide: by the measured copies a second; 7,168 wide: by its bytes, as the dispatch."""
    wide, _ = exchanges(make_setting, "deepseek-v3", "hybridep")
    narrow, copies = exchanges(make_setting, "qwen3-30b-a3b", "hybridep")
    assert wide["expert.combine"] == pytest.approx(wide["expert.dispatch"])
    assert narrow["expert.combine"] == pytest.approx(copies / 7.1e7)
    assert narrow["expert.combine"] > 1.5 * narrow["expert.dispatch"]


def test_other_libraries_combine_as_fast_as_they_dispatch(make_setting):
    times, _ = exchanges(make_setting, "qwen3-30b-a3b", "deepep")
    assert "expert.dispatch_and_combine" in times and "expert.combine" not in times


def test_a_rank_alone_combines_nothing(make_setting):
    setting = make_setting("qwen3-30b-a3b", devices=8, cluster="dgx-b200", framework="megatron-bridge")
    setting = setting.with_choices(dispatcher="flex", dispatcher_library="hybridep")
    plans = Plans.of(Plan.model_validate({"data": 8}))
    priced = price_passes(setting, layer_ops(setting, plans, EXPERTS))[0]
    assert not any(np.any(entry.seconds) for entry in priced if entry.op.kind == "expert")
