"""Phases of a step of post-training, drawn."""

from hypothesis import strategies as st

from simulator.rl.schedules.base import Phases, Split

SPLIT = Split(train=8, generate=8)
seconds = st.floats(0.1, 1000)


@st.composite
def phases(draw):
    generation = draw(seconds)
    busy = draw(st.floats(0.05, 1)) * generation
    return Phases(generation, busy, *(draw(seconds) for _ in range(5)))
