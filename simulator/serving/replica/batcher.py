"""Batch state that a scheduler reads and changes, kept as counters.

All sequences of the decodes gain one token in each decode step. So the batch is (count, sum of KV, steps
done), the end of a sequence is a step number in a heap, and a step costs the same however many sequences
run. State changes when a step is *planned*; its visible effects (first tokens, freed slots and blocks)
happen when it ends. An engine that plans one step ahead thereby sees freed slots one step late.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.step_times import SlidingKv

if TYPE_CHECKING:
    from simulator.serving.question.options import EngineOptions
    from simulator.serving.steps.speculation import Drafts


class Batcher:
    """The scheduler's side of one rank (or of one micro batch in flight of a pipeline).

    Args:
        options: scheduling options of the engine.
        kv: KV blocks, shared by the micro batches of a pipeline.
        waiting: queue, also shared by the micro batches.
        slots: maximum number of concurrent sequences.
    """

    __slots__ = (
        "admits_whole",
        "admitted",
        "ages",
        "beside_s",
        "block_tokens",
        "budget",
        "chunks_prompts",
        "decodes",
        "drafts",
        "ends",
        "keeps",
        "kv",
        "kv_tokens",
        "phases",
        "preemptions",
        "prefilling",
        "receives",
        "reserves",
        "running",
        "serial",
        "shares",
        "slots",
        "steps",
        "swaps",
        "waiting",
        "window",
    )

    def __init__(
        self,
        options: EngineOptions,
        kv: PagedBlocks,
        waiting: deque[Sequence],
        slots: int,
    ) -> None:
        self.kv, self.waiting, self.slots = kv, waiting, slots
        self.budget = options.token_budget
        self.block_tokens = options.block_tokens
        self.shares = kv.shares
        self.chunks_prompts = options.chunked_prefill
        self.reserves = options.preemption == "none"
        """Admission takes the blocks of a whole request, so decodes take none."""
        self.swaps = options.preemption == "swap"
        self.admits_whole = options.admits_whole
        self.keeps = options.swap_keeps
        """Whether the host keeps copies of swapped sequences."""
        self.receives = False
        """Whether prompts come with their KV from a prefill replica."""
        self.beside_s = 0.0
        """Seconds to copy a swapped token beside steps; 0: steps wait for the copies."""
        self.running = 0
        """Slots in use, those of sequences about to leave included."""
        self.prefilling: list[Sequence] = []
        self.decodes = 0
        self.kv_tokens = 0
        """Sum of KV tokens over the decodes, before the next decode step."""
        self.steps = 0
        """Decode steps planned."""
        self.ends: list[tuple[int, int, int, Sequence]] = []
        self.phases = [0] * options.block_tokens
        """Decodes by (KV - steps) modulo the block size: one entry counts those that need a block."""
        self.admitted: list[Sequence] = []
        """Sequences in order of admission; ended sequences are removed periodically."""
        self.drafts: Drafts | None = None
        """Draws of the steps per sequence under speculation; admission then reserves blocks."""
        self.ages = 0
        """Under speculation: sum over the decodes of the steps since they joined."""
        self.window = SlidingKv()
        """KV of sliding layers whose blocks are freed: each sequence holds a window of them."""
        self.serial = 0
        self.preemptions = 0

    # Called by schedulers.

    def left(self, step: PlannedStep) -> int:
        """Tokens of the budget that decodes leave to prompts; drafts count (vLLM's scheduler)."""
        if self.drafts is None:
            return self.budget - step.decodes
        return max(self.budget - self.drafts.queries(step.decodes), 0)

    def decode(self, step: PlannedStep) -> None:
        """Give each decoding sequence a token; while blocks are short, preempt the last admitted."""
        if not self.decodes:
            return
        kv = self.kv
        need = self.phases[-self.steps % self.block_tokens]
        while need > kv.free:
            self.preempt(step)
            if not self.decodes:
                return
            need = self.phases[-self.steps % self.block_tokens]
        if need:
            if self.shares:
                kv.grow(need)
            else:
                kv.free -= need
                kv.taken += need
        step.decodes = decodes = self.decodes
        self.kv_tokens += decodes
        step.kv_tokens = self.kv_tokens
        if self.drafts is not None:
            self.ages += decodes
            step.kv_tokens += int((self.drafts.pace - 1.0) * self.ages)
        self.steps = steps = self.steps + 1
        ends = self.ends
        if ends and ends[0][0] <= steps:
            self._pop_ends(step)

    def fits(self, sequence: Sequence, cached: int) -> bool:
        """Whether all blocks of a waiting prompt are free beside those that partly computed prompts lack."""
        blocks, need = self.kv.blocks, 0
        for prompt in self.prefilling:
            need += blocks(prompt.target) - blocks(prompt.computed)
        return need + blocks(sequence.target) - blocks(cached) <= self.kv.free

    def hold(self, sequence: Sequence, tokens: int, cached: int) -> bool:
        """Take the blocks of ``tokens`` tokens of a waiting sequence, or of all its tokens if it reserves."""
        if self.reserves:
            tokens = sequence.prompt + sequence.output
        if not self.window.ratio:
            return self.kv.hold(sequence, tokens, cached)
        kv, beside = self.kv, self.beside(sequence)
        if beside > kv.free:
            return False
        kv.free -= beside
        if not kv.hold(sequence, tokens, cached):
            kv.free += beside
            return False
        kv.grow(0)
        return True

    def beside(self, sequence: Sequence) -> int:
        """Blocks of a sequence's window in sliding layers; it holds them all from its admission on."""
        tokens = min(sequence.prompt + sequence.output, self.window.tokens)
        return self.window.ratio * self.kv.blocks(tokens)

    def admit(self, step: PlannedStep, sequence: Sequence, cached: int, now: float) -> None:
        """Give a waiting sequence a slot; ``cached`` of its tokens are in the cache."""
        self.running += 1
        self.kv.sequences += 1
        if sequence.loaded and self.swaps:
            self._copy(step, sequence.loaded)
        sequence.loaded = 0
        if self.kv.moves:
            step.read_s += self.kv.wait_seconds(sequence, now)
        elif cached:
            step.read_s += self.kv.read_seconds(sequence)
        sequence.computed = cached
        if sequence.scheduled_s != sequence.scheduled_s:
            sequence.scheduled_s = now
            sequence.cached = cached
        if len(self.admitted) > 2 * self.running + 64:
            self.admitted = self.sequences()
        self.admitted.append(sequence)

    def compute(self, step: PlannedStep, sequence: Sequence, tokens: int) -> None:
        """Put the next ``tokens`` of an admitted sequence into the step; its blocks are held."""
        before, prefilling = sequence.computed, self.prefilling
        if self.receives and tokens == 1:
            # All other keys came with it: the token runs in the kernels and graphs of decodes.
            step.decodes += 1
            step.kv_tokens += before + 1
        else:
            step.chunks += ((tokens, before),)
            step.prompt += tokens
        sequence.computed = after = before + tokens
        if self.shares:
            self.kv.computed(sequence)
        if after < sequence.target:
            if sequence not in prefilling:
                prefilling.append(sequence)
            return
        if before and sequence in prefilling:
            prefilling.remove(sequence)
        step.firsts += (sequence,)
        self.join(step, sequence)

    def join(self, step: PlannedStep, sequence: Sequence) -> None:
        """Count a sequence whose next token appears in this step among the decodes from the next step on."""
        sequence.generated += 1
        left = sequence.output - sequence.generated
        if left <= 0:
            sequence.join_step, sequence.join_kv, sequence.end_step = self.steps, sequence.target, self.steps
            step.leaving += (sequence,)
            return
        self.decodes += 1
        self.kv_tokens += sequence.target
        if not self.reserves:
            self.phases[(sequence.target - self.steps) % self.block_tokens] += 1
        sequence.join_step, sequence.join_kv = self.steps, sequence.target
        sequence.end_step = self.steps + (
            left if self.drafts is None else self.drafts.steps(left, self.decodes)
        )
        self.serial += 1
        heappush(self.ends, (sequence.end_step, self.serial, sequence.ticket, sequence))

    def preempt(self, step: PlannedStep) -> None:
        """Free the blocks of the last admitted sequence, and queue it again at the head."""
        while True:
            sequence = self.admitted.pop()
            if sequence.end_step > self.steps or sequence in self.prefilling:
                break
        self.preempt_sequence(step, sequence)

    def preempt_sequence(self, step: PlannedStep, sequence: Sequence) -> None:
        """Free the blocks of a sequence (already off ``admitted``), and queue it again at the head."""
        step.preempted = True
        kv_tokens = self._take_out(sequence)
        sequence.preemptions += 1
        self.preemptions += 1
        self._release(sequence, kv_tokens, preempted=True)
        if self.swaps:
            sequence.loaded = kv_tokens
            self._copy(step, kv_tokens - sequence.copied)
            sequence.copied = kv_tokens if self.keeps else 0
        self.waiting.appendleft(sequence)

    def _copy(self, step: PlannedStep, tokens: int) -> None:
        """Copy swapped tokens before the step, or beside it."""
        if self.beside_s:
            step.read_s += tokens * self.beside_s
        else:
            step.copied += tokens

    def _release(self, sequence: Sequence, kv_tokens: int, preempted: bool = False) -> None:
        """Free the blocks of a sequence that leaves early, those reserved for later tokens included."""
        kv = self.kv
        kv.release(sequence, kv_tokens, preempted)
        kv.free += self.beside(sequence)
        if self.reserves:
            kv.free += kv.blocks(sequence.prompt + sequence.output) - kv.blocks(kv_tokens)

    def _take_out(self, sequence: Sequence) -> int:
        """Take a running sequence out of the counters; returns its KV tokens. Its blocks stay allocated."""
        if sequence.end_step > self.steps:
            passed = self.steps - sequence.join_step
            kv_tokens = sequence.join_kv + passed
            self.decodes -= 1
            self.kv_tokens -= kv_tokens
            self._leave_phase(sequence)
            if self.drafts is not None:
                self.ages -= passed
                left = sequence.output - sequence.generated
                passed = min(int(passed * self.drafts.pace), left - 1)
            sequence.generated += passed
            sequence.end_step = -1
            sequence.ticket += 1
        else:
            self.prefilling.remove(sequence)
            kv_tokens = sequence.computed
        sequence.target = sequence.prompt + sequence.generated
        sequence.computed = 0
        self.running -= 1
        self.kv.sequences -= 1
        return kv_tokens

    # Called by replicas.

    def evict(self, sequence: Sequence) -> int | None:
        """Remove a waiting or running sequence; returns its KV tokens, also set as ``loaded``.

        None where it is not on this rank, or leaves at the end of a planned step.
        """
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            sequence.ghost = None
            return sequence.loaded
        if sequence not in self.admitted:
            return None
        if sequence.end_step <= self.steps and sequence not in self.prefilling:
            return None
        self.admitted.remove(sequence)
        kv_tokens = self._take_out(sequence)
        self._release(sequence, kv_tokens)
        # Under speculation a step yields several tokens: no more KV moves than those of its tokens.
        sequence.loaded = min(kv_tokens, sequence.target - 1)
        sequence.ghost = None
        return sequence.loaded

    def sequences(self) -> list[Sequence]:
        """Sequences in slots, those about to leave included."""
        return [
            sequence for sequence in self.admitted if sequence.end_step >= 0 or sequence in self.prefilling
        ]

    def quiet(self) -> int:
        """Steps that can follow the last planned one with the same decodes, without asking the scheduler."""
        ends = self.ends
        while ends:
            end, _, ticket, sequence = ends[0]
            if sequence.ticket == ticket:
                break
            heappop(ends)
        else:
            return 0
        steps, free = end - self.steps, self.kv.free
        if self.decodes * (steps // self.block_tokens + 1) > free and not self.reserves:
            steps = self._steps_that_fit(steps, free)
        return steps

    def again(self, step: PlannedStep) -> bool:
        """Turn a planned step into the decode step that follows it; False if too few blocks are free."""
        if not self.reserves:
            need, kv = self.phases[-self.steps % self.block_tokens], self.kv
            if need:
                if need > kv.free:
                    return False
                if self.shares:
                    kv.grow(need)
                else:
                    kv.free -= need
                    kv.taken += need
        decodes = self.decodes
        self.kv_tokens += decodes
        step.kv_tokens += decodes
        if self.drafts is not None:
            self.ages += decodes
            step.kv_tokens += int((self.drafts.pace - 1.0) * decodes)
        self.steps = steps = self.steps + 1
        if self.ends[0][0] <= steps:
            self._pop_ends(step)
        return True

    def growth(self, steps: int) -> int:
        """KV blocks that the decodes take in their next steps."""
        if self.reserves:
            return 0
        phases, end = self.phases, -self.steps % self.block_tokens + 1
        rounds, rest = divmod(steps, self.block_tokens)
        if rest <= end:
            blocks = sum(phases[end - rest : end])
        else:
            blocks = sum(phases[:end]) + sum(phases[end - rest :])
        return blocks + rounds * self.decodes

    def extend(self, step: PlannedStep, steps: int) -> None:
        """Append ``steps`` decode steps to a planned step, which then describes the last of them."""
        added = steps * self.decodes
        blocks = self.growth(steps)
        if blocks:
            kv = self.kv
            if self.shares:
                kv.grow(blocks)
            else:
                kv.free -= blocks
                kv.taken += blocks
        self.kv_tokens += added
        if self.drafts is not None:
            self.ages += added
            step.kv_tokens += int((self.drafts.pace - 1.0) * added)
        step.kv_tokens += added
        self.steps = steps = self.steps + steps
        if self.ends[0][0] <= steps:
            self._pop_ends(step)

    def free(self, sequence: Sequence) -> None:
        """Give back slot and blocks of a sequence that has all its tokens."""
        kv_tokens = sequence.join_kv + sequence.end_step - sequence.join_step
        if self.reserves:
            kv_tokens = sequence.prompt + sequence.output
        sequence.generated = sequence.output
        sequence.end_step = -1
        kv = self.kv
        self.running -= 1
        kv.sequences -= 1
        kv.release(sequence, kv_tokens)
        if self.window.ratio:
            kv.free += self.beside(sequence)

    def _leave_phase(self, sequence: Sequence) -> None:
        if not self.reserves:
            self.phases[(sequence.join_kv - sequence.join_step) % self.block_tokens] -= 1

    def _steps_that_fit(self, steps: int, free: int) -> int:
        rounds = free // self.decodes
        passed, need = rounds * self.block_tokens, rounds * self.decodes
        while passed < steps:
            need += self.phases[-(self.steps + passed) % self.block_tokens]
            if need > free:
                return passed
            passed += 1
        return steps

    def _pop_ends(self, step: PlannedStep) -> None:
        ends, steps = self.ends, self.steps
        while ends and ends[0][0] <= steps:
            end, _, ticket, sequence = heappop(ends)
            if sequence.ticket == ticket:
                self.decodes -= 1
                self.kv_tokens -= sequence.join_kv + end - sequence.join_step
                self._leave_phase(sequence)
                if self.drafts is not None:
                    self.ages -= end - sequence.join_step
                step.leaving += (sequence,)
