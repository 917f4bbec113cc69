"""Low-rank adapters on a frozen model: memory, work, traffic and refusals."""

from pathlib import Path

import pytest

from core.errors import InputError
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training.analytic import predict
from simulator.training.memory import memory
from simulator.training.step_graph.build import simulate

TABLES = 2 * 128256 * 4096 / 8.03e9
"""Share of Llama 3 8B's parameters in its tables, which keep the working format beside frozen weights."""


def scenario(
    adapter=None, model="llama3-8b", cluster="dgx-h100", precision="bf16", framework="torch-fsdp", **plan
):
    workload = {
        "seq_len": 4096,
        "global_batch": 16,
        "precision": precision,
        **({"adapter": adapter} if adapter else {}),
    }
    data = {
        "model": model,
        "cluster": cluster,
        "gpus": 8,
        "workload": workload,
        "framework": framework,
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
    bytes_each = 0.516 * (1 - TABLES) + 2 * TABLES
    assert quantised["parameters"] == pytest.approx(tuned["parameters"] * bytes_each / 2, rel=0.04)


def test_weight_gradients_are_not_computed():
    full, tuned = (predict(made.setting, Plans.of(made.plan)) for made in (scenario(), scenario({"rank": 1})))
    ratio = float(tuned.seconds["gemm"][0] / full.seconds["gemm"][0])
    assert 0.6 < ratio < 0.8  # forward and input gradients of three products; a thin one beside each
    sent = [
        step.sent["gradients"].bytes.sum() + step.sent["parameters"].bytes.sum() for step in (full, tuned)
    ]
    assert sent[1] < sent[0]


def test_an_update_moves_adapters_alone():
    """The distributed optimizer gathers what it updated; sharded parameters are gathered whole."""

    def moved(zero, adapter=None):
        made = scenario(adapter, zero=zero, recompute="none")
        return float(predict(made.setting, Plans.of(made.plan)).sent["parameters"].bytes.sum())

    setting = scenario({"rank": 16}).setting
    for zero in (1, 2):
        share = moved(zero, {"rank": 16}) / moved(zero)
        assert share == pytest.approx(setting.trained * (1 + setting.trained), rel=0.02)
    # Two gathers of 2 bytes; a reduction of 4 bytes is that of trained parameters.
    assert moved(3, {"rank": 16}) == pytest.approx(moved(3) / 2, rel=0.02)
    assert moved(3, {"rank": 16, "base": "nf4"}) == pytest.approx(moved(3) * 0.516 / 4, rel=0.04)


def narrow(base, cluster="dgx-h100", precision="fp8"):
    run = {"cluster": cluster, "precision": precision, "framework": "torchtitan"}
    return parts(scenario({"rank": 16, "base": base}, **run, zero=1, recompute="none"))


def test_products_read_frozen_weights_of_their_format():
    """No decoding, no cast of weights, a byte a weight of a layer; a format of blocks keeps weights twice."""
    (wide, held), (step, kept) = narrow("bf16"), narrow("fp8")
    assert kept["parameters"] == pytest.approx(held["parameters"] * (1 + TABLES) / 2, rel=0.02)
    assert step.seconds["elementwise"][0] < wide.seconds["elementwise"][0]
    assert step.time[0] < wide.time[0] < narrow("int8")[0].time[0]
    _, blocks = narrow("mxfp8", "dgx-b200", "mxfp8")
    assert blocks["parameters"] == pytest.approx(held["parameters"], rel=0.05)


def test_frozen_products_keep_no_inputs():
    """Without adapters on the MLP its activation keeps what it reads, and no product beside it anything."""
    every, attention = (
        parts(scenario({"rank": 1, "targets": targets}, recompute="none"))[1]["activations"]
        for targets in (["attention", "mlp"], ["attention"])
    )
    _, full = parts(scenario(recompute="none"))
    tokens, layers = 4096, 32
    inputs = 2 * tokens * layers * (4096 + 14336)
    assert every - attention == pytest.approx(inputs, rel=0.1)
    assert every == pytest.approx(full["activations"], rel=0.02)


def test_a_dropout_of_adapters_inputs_adds_a_kernel_and_a_mask():
    (plain, held), (dropped, kept) = (
        parts(scenario({"rank": 16, "targets": ["attention"], "dropout": drops}, recompute="none"))
        for drops in (False, True)
    )
    assert dropped.seconds["elementwise"][0] > plain.seconds["elementwise"][0]
    # The inputs of two projections, one byte each, and what the allocator cannot use.
    masks = 1.05 * 2 * 4096 * 4096 * 32
    assert kept["activations"] - held["activations"] == pytest.approx(masks, rel=0.02)


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
        for made in (scenario({"rank": 16}, zero=1), scenario({"rank": 16, "base": "nf4"}, zero=1))
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
    with pytest.raises(InputError, match="no kernel of h100-sxm multiplies nvfp4"):
        scenario({"rank": 16, "base": "nvfp4"})
