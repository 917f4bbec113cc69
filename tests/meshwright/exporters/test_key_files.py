"""Files of keys: every fact that a file names is one that its writer has."""

from pathlib import Path

import pytest

from meshwright.exporters import KEYED
from meshwright.exporters.key_files import KeyFile, key_file
from meshwright.exporters.post_training import posted
from meshwright.exporters.tuning import tuning_facts
from meshwright.jobs.exports import from_scenario
from tests.meshwright.exporters.test_post_training import QUESTION

TUNED = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 8, "framework": "trl", "plan": {}}
TUNED |= {"workload": {"seq_len": 2048, "global_batch": 64, "adapter": {"rank": 16, "base": "nf4"}}}


def facts_of(target: str, keys: KeyFile) -> dict:
    data = (
        TUNED
        if target in KEYED["tuning"]
        else QUESTION | ({"framework": target} if target == "slime" else {})
    )
    question = from_scenario(data, "test", Path(), "test")
    if target in KEYED["tuning"]:
        scenario, plan = question.training()
        return tuning_facts(scenario.setting, plan)
    return posted(question, keys).facts() | dict.fromkeys(("estimator", "trainer", "program", "base"))


@pytest.mark.parametrize("target", [name for targets in KEYED.values() for name in targets])
def test_keys_name_facts_that_there_are(target):
    keys = key_file(target)
    facts = facts_of(target, keys)
    assert keys.script % facts and keys.top % facts is not None
    for group in keys.groups:
        assert group.keys or group.gap
        assert group.gap % facts is not None
        named = [condition.removeprefix("not ") for condition in group.when]
        named += [value[1:] for value in group.keys.values() if str(value).startswith("=")]
        assert not set(named) - facts.keys()
