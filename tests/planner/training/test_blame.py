"""The rule that is blamed where nothing is possible is the one whose removal helps."""

import pytest

from core.errors import InputError
from meshwright.questions.training import ask
from planner.training.constraints import Constraints
from planner.training.search import search


@pytest.mark.parametrize(
    ("gpus", "batch", "fix", "named", "not_named"),
    [
        (250, 512, (), ["batch"], ["nvlink_domain", "sequence", "devices", "heads"]),
        (256, 512, ("pipeline=7",), ["devices"], ["batch", "nvlink_domain"]),
        (256, 512, ("tensor=16", "context=16", "data=2"), ["constraint"], ["heads", "batch"]),
        (256, 512, ("tensor=3",), ["heads", "kv_heads", "devices"], ["batch"]),
    ],
)
def test_the_rule_to_blame_is_named(gpus, batch, fix, named, not_named):
    question = {"model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": gpus, "seq_len": 8192}
    setting = ask(None, {**question, "global_batch": batch})[0].setting
    with pytest.raises(InputError) as error:
        search(setting, gpus, Constraints.parse(fix))
    for name in named:
        assert f"({name})" in str(error.value)
    for name in not_named:
        assert f"({name})" not in str(error.value)
