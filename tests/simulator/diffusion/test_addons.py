"""ControlNets and adapters: identities, what they may gain at most, and what is refused."""

from dataclasses import asdict
from pathlib import Path

import pytest

from core.errors import InputError
from simulator.diffusion.addons import adapter_bytes, control_parameters
from simulator.diffusion.models import diffusion_models
from simulator.diffusion.request import predict_request
from simulator.diffusion.scenario import make_diffusion
from simulator.diffusion.work import request_work

SDXL = {"model": "sdxl", "cluster": "dgx-h100", "workload": {"kind": "diffusion", "steps": 20}}


def setting(layout=None, **addons):
    return make_diffusion({**SDXL, "layout": layout or {}, "addons": addons}, "test", Path())


def latency(*arguments, **named):
    return predict_request(setting(*arguments, **named)).times.latency_s


def test_parameters_are_those_published():
    # diffusers/controlnet-canny-sdxl-1.0; embeddings of sizes and of pooled text are left out.
    assert control_parameters(diffusion_models.get("sdxl")) == pytest.approx(1.251e9, rel=0.02)


def test_without_addons_nothing_changes():
    plain = make_diffusion(SDXL, "test", Path())
    assert asdict(predict_request(setting()).times) == asdict(predict_request(plain).times)


def test_controls_in_turn_add_up():
    none, one, three = (latency(controls=count) for count in (0, 1, 3))
    assert three - none == pytest.approx(3 * (one - none), rel=1e-3)


@pytest.mark.parametrize("layout", [{}, {"guidance": 2}, {"patches": 2}])
def test_controls_apart_hide_at_most_themselves(layout):
    none, shared, own = (
        latency(layout, **addons) for addons in ({}, {"controls": 2}, {"controls": 2, "placement": "own"})
    )
    assert none < own < shared


def test_a_control_apart_waits_for_what_the_model_does_not_hide():
    asked = setting(controls=1, placement="own")
    times, work = predict_request(asked).times, request_work(asked)
    assert work.control and work.repeated
    assert work.control.flops > work.repeated.flops
    assert times.exposed_s > 0
    assert asked.devices == 2 * asked.layout.devices


def served(copies, placement="service", layout=None):
    work = {**SDXL["workload"], "batch": copies}
    addons = {"controls": 2, "placement": placement}
    data = {**SDXL, "workload": work, "layout": {"data": copies, **(layout or {})}, "addons": addons}
    return predict_request(make_diffusion(data, "test", Path()))


@pytest.mark.parametrize("layout", [{}, {"guidance": 2}])
def test_a_service_of_few_copies_is_as_fast_as_controls_of_their_own_on_fewer_devices(layout):
    own, service = served(2, "own", layout), served(2, layout=layout)
    assert asdict(service.times) == asdict(own.times)
    ranks = layout.get("guidance", 1)
    assert (own.setting.devices, service.setting.devices) == (6 * ranks, 4 * ranks)


def test_a_service_of_many_copies_waits_for_one_control_over_all_of_them():
    eight, sixteen = served(8), served(16)
    assert sixteen.times.device_s + sixteen.times.exposed_s == pytest.approx(
        2 * (eight.times.device_s + eight.times.exposed_s)
    )
    assert sixteen.rate == pytest.approx(eight.rate, rel=0.05)
    assert served(3).times.step_s <= eight.times.step_s


def test_a_service_of_one_copy_is_refused():
    with pytest.raises(InputError, match="several copies"):
        served(1)


def test_adapters_beside_steps_still_take_their_merge():
    none, before, beside = (
        latency(**addons) for addons in ({}, {"adapters": 2}, {"adapters": 2, "merged": "beside"})
    )
    assert none < beside < before
    # One step is too short to hide the reading.
    bounded = latency(adapters=2, merged="beside", bound=1, rank=1024)
    step = predict_request(setting()).times.step_s
    beside_weights = 2 * 721 * setting().library.adapter_s
    assert latency(adapters=2, rank=1024) - bounded == pytest.approx(step + beside_weights)


def test_adapters_have_two_matrices_a_weight():
    model = diffusion_models.get("sdxl")
    assert adapter_bytes(model, 128) == 2 * adapter_bytes(model, 64)


def test_uncached_controls_are_read_for_their_share():
    cached, half, none = (latency(controls=1, uncached=share) for share in (0.0, 0.5, 1.0))
    assert half - cached == pytest.approx(none - half)


def test_power_counts_the_devices_of_controls():
    own = predict_request(setting(controls=1, placement="own"))
    idle = own.setting.cluster.device.idle_watts
    assert 2 * idle < own.watts < 2 * own.setting.cluster.device.tdp_watts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "sd3.5-large", "addons": {"controls": 1}}, "of sd3.5-large is known; known: sdxl"),
        ({"addons": {"placement": "own"}}, "controls is 0"),
        ({"addons": {"merged": "beside"}}, "adapters is 0"),
        ({"addons": {"controls": 65}}, "64"),
        ({"addons": {"control": 1}}, "controls"),
        ({"addons": {"adapters": 1, "rank": 0}}, "rank"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        make_diffusion({**SDXL, **change}, "test", Path())
