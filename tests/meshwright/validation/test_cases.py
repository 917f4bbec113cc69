"""Published rows whose words say how layers lie on stages."""

import pytest

from meshwright.validation.cases import balanced_last_stage, read_case
from simulator.costs.stages import Stages
from simulator.models import models
from simulator.plan import Plans

ROW = {
    "case_id": "row",
    "gpu": "a100-sxm-80gb",
    "gpus_per_node": "8",
    "n_gpus": "8",
    "model_name": "GPT-4B",
    "n_layers": "32",
    "d_model": "3072",
    "n_heads": "24",
    "d_ff": "12288",
    "ffn_type": "gelu",
    "vocab": "128000",
    "seq_len": "2048",
    "precision": "fp16",
    "global_batch": "128",
    "micro_batch": "1",
    "tp": "1",
    "pp": "8",
    "framework": "Megatron-LM",
    "derived_step_time_s": "6.3",
}


@pytest.mark.parametrize(
    ("vocabulary", "seq_len", "last"),
    # Final-stage layers that the artifact of Yeung et al. 2025 was run with (exp_one_host.csv).
    [(32000, 2048, 4), (128000, 2048, 2), (256000, 2048, 0), (128000, 4096, 2), (256000, 4096, 0)],
)
def test_layers_are_redistributed_as_the_paper_did(vocabulary, seq_len, last):
    row = ROW | {
        "pp_schedule": "1f1b + layer redistribution",
        "vocab": str(vocabulary),
        "seq_len": str(seq_len),
    }
    case = read_case(row, "test")
    assert case.plan.schedule == "1f1b"
    stages = Stages.of(case.setting, Plans.of(case.plan))
    assert stages.last[0] == last
    assert stages.first[0] == 4
    assert stages.middle[0] == -(-(28 - last) // 6)


def test_a_small_vocabulary_moves_nothing():
    assert balanced_last_stage(models.get("gpt3-175b"), 2048, 8) == 12


def test_other_rows_keep_even_stages():
    case = read_case(ROW | {"pp_schedule": "interlaced"}, "test")
    assert (case.plan.schedule, case.plan.last_stage_layers) == ("interlaced", 0)
