"""Where the numbers of a replica lie in its columns.

``ints`` holds whole numbers: a head, then one block a lane (a micro batch in flight; a replica without
stages has one lane), each with two planned steps. ``reals`` holds seconds in the same way. ``sequences``
and ``times`` hold a row a sequence, ``places`` lists of sequences, ``phases`` the decodes of a lane by
phase, as in `Batcher`.
"""

from typing import Any, NamedTuple


class ReplicaColumns(NamedTuple):
    """The columns of a replica, which kernels hand on: arrays where they are compiled, lists elsewhere.

    ReplicaColumns of a fleet hold one row a replica in place of each but ``sequences``, ``cache``, ``times``,
    ``prices`` and ``marks``, which its replicas share.
    """

    ints: Any
    reals: Any
    sequences: Any
    cache: Any
    """Prefix caches; see `cache`."""
    times: Any
    places: Any
    phases: Any
    heaps: Any
    """Ends of the decodes of each lane; see `lists`."""
    prices: Any
    marks: Any
    """Step times, and where their parts begin; see `prices`."""
    rows: Any
    """Rows of steps that were run."""


# Head of ``ints``: the rules.
BLOCK_TOKENS, SLOTS, BUDGET, RESERVES, KEEPS, CUTS, ADMITS_WHOLE, AHEAD, LANE_COUNT, ARRIVALS = range(10)
PROMPTS_FIRST, UNIT_TOKENS, UNIT_BLOCKS, USERS, NEXT_IDLE, LAST_IDLE, NO_UNIT = range(24, 31)
"""Whether prompts come before decodes; tokens and blocks of a unit of the prefix cache, where ``cache``
counts the users of each unit (-1: not cached), and where it links idle units in order of their last use;
the unit that closes the ring."""
# Head of ``ints``: the state.
FREE, TAKEN, ADMITTED_NOW, PREEMPTED, QUEUE, QUEUED, ROW_COUNT = range(10, 17)
"""Free blocks; blocks taken so far; admitted sequences of all lanes; preempted ones that wait, which stand
before new ones; new ones that were admitted, and that came; rows that are kept."""
RUNNING_STEP, PLANNED_STEP, COUNT = range(17, 20)
"""Without stages: block of the running and of the planned step (0: none), steps of the running stretch."""
LANES_UNDER_WAY, ORDER, ROUNDS, LONGEST = range(20, 24)
"""With stages: lanes under way, where ``places`` lists them in the order in which they leave; the rounds of
the stretch, and the place of the longest lane in that order."""
IDLE_COUNT, HEAD, TAIL, KV_BLOCKS = 31, 32, 33, 34
"""Idle units; first and last of the new sequences that wait, each of which names the next; all blocks."""
LANES = 35
"""First lane."""

# Of a lane in ``ints``.
RUNNING, DECODES, KV_TOKENS, STEPS, PREFILLING, ADMITTED, PLACES, STAGED, LANE_COUNT_S, VALID = range(10)
"""``PREFILLING`` is the sequence whose prompt is partly computed, or -1: with chunks there is one at most.
``ADMITTED`` counts the list at ``PLACES``. With stages: whether it runs, steps since the planned one, steps
for which the growth holds."""
STEP = 10
"""First planned step of a lane."""
STEP_DECODES, STEP_KV, STEP_PROMPT, STEP_CHUNKS, STEP_PREEMPTED, STEP_FIRSTS, STEP_LEAVING = range(7)
STEP_PLACES, STEP_REAL = 7, 8
"""Where ``places`` lists the step's first tokens and, ``SLOTS`` behind, those that leave; where ``reals``
holds the seconds of its chunks."""
STEP_WIDTH = 9
LANE_WIDTH = STEP + 2 * STEP_WIDTH

# Head of ``reals``.
NEXT_S, START_S, TOKEN_S, FIRST_S, GROWTH_S = range(5)
FREE_S, LAST_EXIT_S, BUSY_FROM_S, TURNED_S = range(5, 9)
LANE_REALS = 9
"""First lane."""
READY_S, EXIT_S, SECONDS, LANE_GROWTH_S, CHUNKS_S = range(5)
LANE_REALS_WIDTH = 6

# Of a sequence.
PROMPT, OUTPUT, TARGET, COMPUTED, GENERATED, JOIN_STEP, JOIN_KV, END_STEP, BLOCKS, CACHED, PREEMPTIONS = (
    range(11)
)
GHOST_TAKEN, GHOST_FREE, GHOST_BLOCKS = 11, 12, 13
FIRST_UNIT, UNIT_COUNT, UNITS_HELD = 14, 15, 16
"""Where ``cache`` lists the units of its prefix, how many there are, and how many of the first it holds."""
NEXT_WAITING, REPLICA = 17, 18
SEQUENCE_WIDTH = 19
QUEUED_S, SCHEDULED_S, FIRST_TOKEN_S, LAST_S = range(4)
TIMES_WIDTH = 4

KEY_BITS = 24
"""Bits of a sequence's number in the key of its end."""
MOST_SEQUENCES = 1 << KEY_BITS
