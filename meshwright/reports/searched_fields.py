"""Fields that a search of serving plans varies, in words."""

from __future__ import annotations

from planner.serving.engine_options import switch_words
from planner.serving.question import ServingQuestion
from planner.serving.shapes import choices


def searched_fields(question: ServingQuestion) -> list[str]:
    """Fields that the search varied."""
    names = {
        "tensor": "tensor",
        "data": "data-parallel attention",
        "expert": "expert parallelism",
        "pipeline": "pipeline",
        "speculation": "speculation",
        "weights": "weights",
        "kv": "KV format",
        "clock_mhz": "clocks",
    }
    tried: dict[str, set[str]] = {name: set() for name in names}
    for fields in choices(question):
        for name in names:
            tried[name].add(str(fields[name]))
    parts = [words for name, words in names.items() if len(tried[name]) > 1]
    parts += [
        words
        for name, words in (("token_budget", "chunk limits"), ("max_sequences", "batch limits"))
        if name not in question.fix
    ]
    parts += switch_words(question)
    return [*parts, "replicas", *(["disaggregation"] if question.split else [])]
