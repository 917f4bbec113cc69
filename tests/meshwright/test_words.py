"""Names as users type them: of the hub, and parts of names."""

from __future__ import annotations


def test_a_name_of_the_hub_asks_for_its_configuration(refused):
    words = "plan train --model deepseek-ai/DeepSeek-V9 --cluster dgx-h100 --gpus 8 --global-batch 8"
    assert "hf download deepseek-ai/DeepSeek-V9 config.json" in refused(*words.split())


def test_part_of_a_name_lists_the_matches(run):
    told = run("show", "models", "qwen3")
    assert told.code == 0
    assert "qwen3-32b" in told.out and "llama3.1-8b" not in told.out
