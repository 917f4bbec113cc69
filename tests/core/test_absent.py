"""Wrong names: near ones are offered, far ones are not, and known absences are explained."""

from __future__ import annotations

import pytest

from core.absent import absent
from core.errors import UnknownNameError, distance, suggestion


@pytest.mark.parametrize(
    ("one", "other", "letters"),
    [
        ("modle", "model", 1),
        ("model", "model", 0),
        ("", "abc", 3),
        ("verl", "trl", 2),
        ("kitten", "sitting", 3),
    ],
)
def test_distance(one, other, letters):
    assert distance(one, other) == distance(other, one) == letters


@pytest.mark.parametrize(
    ("unknown", "names", "offered"),
    [
        ("dgx-h10", ["dgx-h100", "dgx-a100"], "dgx-h100"),
        ("modle", ["model", "cluster"], "model"),
        ("t5-11b", ["mpt-1b", "gpt2"], ""),
        ("bert-large", ["gpt2-large"], ""),
        ("mamba2-2.7b", ["gemma2-27b"], ""),
    ],
)
def test_names_are_offered_within_a_few_letters(unknown, names, offered):
    words = suggestion(unknown, [*names, *(f"filler-{number}-of-a-catalogue" for number in range(30))])
    assert ("did you mean" in words) is bool(offered)
    assert offered in words


@pytest.mark.parametrize(
    ("kind", "name", "word"),
    [
        ("model", "google/flan-t5-small", "--osl 0 prices the encoder"),
        ("model", "BAAI/bge-micro", "encoders"),
        ("model", "google/gemma-3n-E4B-it", "streams of residuals"),
        ("cluster", "tpu-v5p-256", "TPU"),
        ("device", "trainium2", "Trainium"),
        ("framework", "verl", "kind: rl"),
        ("export target", "helm", "--to llm-d"),
    ],
)
def test_absent_things_are_explained(kind, name, word):
    assert word in absent(kind, name)
    assert word in str(UnknownNameError(kind, name, ["gpt3-175b", "dgx-h100"]))


def test_other_kinds_and_names_are_not():
    assert absent("key", "tpu") == ""
    assert absent("model", "llama3.1-8b") == ""
