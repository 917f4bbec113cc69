"""Files of another kind than the one asked for, told by the keys at their top."""

from __future__ import annotations

from collections.abc import Collection

FILE_KINDS = (
    (("model_type", "hidden_size"), "is the config.json of a model: --model FILE"),
    (("model", "cluster", "workload"), "is a scenario: meshwright simulate FILE, or plan FILE"),
    (("scenario", "grid"), "is a sweep: meshwright sweep FILE"),
    (("site_format",), "is a site, which learn wrote: --site FILE"),
    (("device", "devices_per_node"), "is a cluster: --cluster FILE"),
    (("device", "nodes"), "is a cluster: --cluster FILE"),
    (("layers", "hidden", "heads"), "is a model: --model FILE"),
    (("plans", "question"), "is an answer of --json; --save plan.yaml writes a scenario"),
    (("deployments", "question"), "is an answer of --json; --save plan.yaml writes a scenario"),
    (("plan", "step_time_s"), "is an answer of --json; --save plan.yaml writes a scenario"),
)
"""Keys that a kind of file has, and what is said of it."""


def other_kind(keys: Collection[str], expected: Collection[str]) -> str:
    """What a file is instead of the kind that has the expected keys; empty where nothing tells.

    Args:
        keys: at the top of the file.
        expected: keys of the kind that was asked for.
    """
    for signature, words in FILE_KINDS:
        if all(key in keys for key in signature) and not all(key in expected for key in signature):
            return words
    return ""
