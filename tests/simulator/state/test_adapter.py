"""Low-rank adapters on a frozen model: memory, work, traffic and refusals."""

from pathlib import Path

import pytest

from core.errors import InputError
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training.analytic import predict
from simulator.training.memory import memory
from simulator.training.step_graph.build import simulate


def scenario(adapter=None, model="llama3-8b", cluster="dgx-h100", **plan):
    workload = {"seq_len": 4096, "global_batch": 16, **({"adapter": adapter} if adapter else {})}
    data = {
        "model": model,
        "cluster": cluster,
        "gpus": 8,
        "workload": workload,
        "framework": "torch-fsdp",
        "plan": {"zero": 3, "recompute": "full", **plan},
    }
    return make_scenario(data, "test", Path())


def parts(made):
    plans = Plans.of(made.plan)
    step = predict(made.setting, plans)
    held = memory(made.setting, plans, step.stages, step.parameters).parts
    return step, {name: float(part[0, 0]) for name, part in held.items()}


def test_adapters_have_two_factors_a_product():
    """Rank 16 beside the four products of a layer of Llama 3 8B, with fused QKV and gate-up."""
    setting = scenario({"rank": 16}).setting
    widths = (4096 + 6144) + (4096 + 4096) + (4096 + 2 * 14336) + (14336 + 4096)
    assert setting.trained * 8.07e9 == pytest.approx(32 * 16 * widths, rel=0.01)
    assert scenario().setting.trained == 1.0


def test_adapters_of_query_key_and_value_alone():
    """NeMo's default target: one pair of factors a layer."""
    setting = scenario({"rank": 32, "targets": ["query_key_value"]}).setting
    assert setting.trained * 8.03e9 == pytest.approx(32 * 32 * (4096 + 6144), rel=0.01)
    with pytest.raises(InputError, match="deepseek-v3 has no query_key_value"):
        scenario({"rank": 8, "targets": ["query_key_value"]}, model="deepseek-v3")


def test_frozen_parameters_have_no_gradients_and_no_state():
    _, full = parts(scenario())
    _, tuned = parts(scenario({"rank": 16}))
    assert tuned["optimizer"] < full["optimizer"] / 100
    assert tuned["gradients"] < full["gradients"] / 100
    _, quantised = parts(scenario({"rank": 16, "base": "nf4"}))
    assert quantised["parameters"] == pytest.approx(tuned["parameters"] * 0.516 / 2, rel=0.04)


def test_weight_gradients_are_not_computed():
    full, tuned = (predict(made.setting, Plans.of(made.plan)) for made in (scenario(), scenario({"rank": 1})))
    ratio = float(tuned.seconds["gemm"][0] / full.seconds["gemm"][0])
    assert 0.6 < ratio < 0.8  # forward and input gradients of three products; a thin one beside each
    sent = [
        step.sent["gradients"].bytes.sum() + step.sent["parameters"].bytes.sum() for step in (full, tuned)
    ]
    assert sent[1] < sent[0]


def test_log_probabilities_compute_the_gradient_of_a_frozen_output_layer():
    """They repeat the output layer's product, and beside adapters add that of its weights' gradient too."""

    def more(adapter):
        pieces, chunked = (
            predict(made.setting, Plans.of(made.plan)).seconds["gemm"][0]
            for made in (scenario(adapter, cross_entropy=loss) for loss in ("log-probabilities", "chunked"))
        )
        return pieces - chunked

    assert more({"rank": 16}) == pytest.approx(2 * more(None), rel=0.2)


def test_decoding_costs_time():
    plain, coded = (
        float(predict(made.setting, Plans.of(made.plan)).time[0])
        for made in (scenario({"rank": 16}), scenario({"rank": 16, "base": "nf4"}))
    )
    assert coded > plain


def test_both_timings_agree():
    made = scenario({"rank": 16})
    closed = float(predict(made.setting, Plans.of(made.plan)).time[0])
    assert simulate(made.setting, made.plan).period == pytest.approx(closed, rel=0.02)


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        ({"rank": 0}, "workload.adapter.rank"),
        ({"rank": 16, "targets": ["experts"]}, "has no experts; it has attention, query_key_value, mlp"),
        ({"rank": 16, "base": "int3"}, "workload.adapter.base"),
        ({"rank": 16, "targets": []}, "workload.adapter.targets"),
    ],
)
def test_refusals_name_the_key(adapter, words):
    with pytest.raises(InputError, match=words):
        scenario(adapter)


def test_a_base_format_needs_a_kernel():
    with pytest.raises(InputError, match="no kernel of a100-sxm-80gb multiplies fp8"):
        scenario({"rank": 16, "base": "fp8"}, cluster="dgx-a100-80gb")
