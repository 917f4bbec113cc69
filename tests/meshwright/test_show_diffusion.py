"""`show` of towers, diffusion models and their libraries."""

import json

import pytest


def shown(run, kind, name):
    report = json.loads(run("show", kind, name, "--json").out)
    return report[kind.removesuffix("s")]


def test_a_tower_shows_its_parameters(run):
    assert shown(run, "towers", "qwen3-vl-8b")["parameters"] == 576_388_336
    assert "2,040" in run("show", "towers", "qwen3-vl-8b").out


def test_a_diffusion_model_shows_its_parameters_beside_the_published_ones(run):
    assert shown(run, "diffusion-models", "FLUX.1-dev")["parameters"] == pytest.approx(11.9e9, rel=0.01)
    assert "70 cross" in run("show", "diffusion-models", "sdxl").out


def test_a_library_shows_the_sources_of_its_constants(run):
    assert "evidence.accuracy.diffusion_rows" in run("show", "diffusion-libraries", "xdit").out.replace(
        "\n", ""
    )


@pytest.mark.parametrize("kind", ["towers", "diffusion-models", "diffusion-libraries"])
def test_an_unknown_name_is_refused_with_the_nearest(refused, kind):
    assert "unknown" in refused("show", kind, "nothing-like-it")
