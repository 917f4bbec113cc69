"""Every token is computed once."""

from core.errors import InfeasibleError
from tests.laws.answers import served_run
from tests.laws.questions import Question, served, strategy

NUMBER = 41
QUESTIONS = strategy(served)


def check(question: Question) -> None:
    """Add up the tokens of all steps; a preempted sequence is rightly computed twice."""
    run = served_run(question)
    if run.metrics.preemptions or run.fleet.refused:
        raise InfeasibleError("a sequence was preempted, or a request refused")
    columns, totals = run.records.columns(), [member.meter.totals for member in run.fleet.members]
    sums = {
        "prompt": (columns["prompt"].sum(), sum(total.prompt_tokens for total in totals)),
        "output": (columns["output"].sum(), sum(total.output_tokens for total in totals)),
        "later output": (
            (columns["output"] - 1).sum(),
            sum(sum(total.gaps.values()) for total in totals),
        ),
    }
    for name, (asked, computed) in sums.items():
        assert asked == computed, f"{name} tokens: {computed} are computed of {asked}"
