"""Weights of parts in formats of their own, and devices whose only 16-bit format is fp16."""

import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.models.parts import PartFormats
from simulator.ops.counts import attention_parameters
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.memory import weight_bytes
from simulator.serving.steps.price import StepPrice


def price_of(model, device="h100-sxm", **pool):
    return StepPrice(model, usual_cluster(device), Pool(**pool), engines.get("vllm-0.19"))


def with_parts(name="llama3.1-8b", checkpoint="fp8", **parts):
    update = {"checkpoint": checkpoint, "parts": PartFormats(**parts)}
    return models.get(name).model_copy(update=update)


def test_attention_in_16_bits_weighs_two_bytes():
    model = with_parts(attention={"bf16": 1.0}, dense={"fp8": 1.0})
    attention = model.layers * attention_parameters(model)
    uniform = weight_bytes(price_of(models.get("llama3.1-8b"), weights="fp8"))
    assert weight_bytes(price_of(model)) == pytest.approx(uniform + attention)


def test_parts_count_only_in_the_checkpoints_own_format():
    model = with_parts(attention={"bf16": 1.0}, dense={"fp8": 1.0})
    plain = models.get("llama3.1-8b")
    for weights in ("bf16", "int4"):
        assert weight_bytes(price_of(model, weights=weights)) == weight_bytes(
            price_of(plain, weights=weights)
        )


def test_products_of_a_part_run_in_its_format():
    narrow = float(price_of(models.get("llama3.1-8b"), weights="fp8").linear(4096.0))
    mixed = float(price_of(with_parts(attention={"bf16": 1.0}, dense={"fp8": 1.0})).linear(4096.0))
    wide = float(price_of(models.get("llama3.1-8b")).linear(4096.0))
    assert narrow < 0.98 * mixed < mixed < 0.9 * wide


def test_a_narrow_output_layer_saves_its_bytes():
    parts = {"attention": {"fp8": 1.0}, "dense": {"fp8": 1.0}}
    wide, narrow = with_parts(**parts, head={"bf16": 1.0}), with_parts(**parts, head={"fp8": 1.0})
    assert weight_bytes(price_of(wide)) - weight_bytes(price_of(narrow)) == wide.output_parameters


def test_weight_only_formats_compute_in_16_bits():
    model = with_parts(checkpoint="fp4", attention={"fp8": 1.0}, dense={"fp4": 1.0})
    formats = price_of(model.model_copy(update={"weight_only": ["fp4"]}), "b200").weights
    assert (formats.attention, formats.dense, formats.dense_widened) == ("fp8", "bf16", True)
    assert price_of(model, "b200").weights.dense == "nvfp4"


def test_the_checkpoints_kv_format_is_the_default():
    model = models.get("llama3.1-8b").model_copy(update={"checkpoint_kv": "fp8"})
    assert Pool().of(model).kv == "fp8"
    assert Pool(kv="bf16").of(model).kv == "bf16"


@pytest.mark.parametrize("device", ["t4", "v100-32gb"])
def test_a_device_without_bf16_serves_in_fp16(device):
    price = price_of(models.get("llama2-7b"), device)
    assert (price.formats.linear, price.formats.core) == ("fp16", "fp16")
    read = weight_bytes(price) / price.cluster.device.memory_bandwidth
    assert read < float(price.linear(1.0) + price.head(1.0)) < 2.0 * read
