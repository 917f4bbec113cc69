"""Published gains of systems whose state lies elsewhere, is dropped or shared, and of trees of proposals,
verifiers, tables of quality and small machines; bands were set before."""

from __future__ import annotations

from evidence.claims.moving_papers import over
from evidence.claims.serving_claims import ServingClaim, over_range
from evidence.claims.serving_papers import ServingRuns
from simulator.serving.scenario import make_serving

RATE, SPENT = "total_rate_per_gpu", "dollars_per_million"
LESS = "serve-less-state-7b"
INSTINFER = "serve-instinfer-13b"
LAMINA = "serve-lamina-65b"
STATES = (
    over(LESS, "tokens/s with half of the KV (Keyformer)", 2.4, (1.2, 2.4), "evicted", metric=RATE),
    over(LESS, "the same, short contexts: no gain", 1.0, (0.95, 1.1), "short, evicted", "short", RATE),
    over(LESS, "tokens/s, a fifth of the KV read (ALISA)", 1.9, (1.0, 2.0), "tight, ALISA", "tight", RATE),
    over(LESS, "the same over FlexGen", 3.0, (1.3, 10.0), "tight, ALISA", "tight, FlexGen", RATE),
    over(INSTINFER, "tokens/s over KV read from SSD", 11.1, (3.0, 11.0), "dense", metric=RATE),
    over(INSTINFER, "the same, an eighth of the KV read", 11.1, (3.0, 11.0), "sparse", metric=RATE),
    over(INSTINFER, "the same over KV in the host: no gain", 1.0, (0.1, 1.0), "dense", "host", RATE),
    over(LAMINA, "tokens per dollar over four H100", 1.5, (1.1, 2.0), "base", "Lamina", SPENT),
    over(LAMINA, "tokens/s of one batch in flight over two", 0.7, (0.5, 1.0), "one batch", "Lamina", RATE),
    over(LAMINA, "tokens per dollar, short contexts", 0.7, (0.3, 1.0), "short", "short, Lamina", SPENT),
)
INFINITE = "serve-infinite-llm-7b"
LOANS = (
    ServingClaim(
        INFINITE,
        "tokens/s over four instances of eight GPUs, vLLM of 2023",
        1.54,
        (1.2, 1.9),
        ("open, lent",),
        ("open, eight GPUs over Ray",),
        RATE,
    ),
    over(INFINITE, "the same on one engine", 1.54, (1.2, 1.9), "open, lent", "open, eight GPUs", RATE),
    over(INFINITE, "mean TTFT over that of borrowing replicas", 1.5, (1.0, 5.0), "lent", "eight GPUs"),
    over(INFINITE, "tokens/s without long requests: no gain", 1.0, (0.95, 1.05), "short, lent", metric=RATE),
)
HETEGEN = "serve-streaming-30b"
SPLIT = (
    over(HETEGEN, "tokens/s over layers from the host (HeteGen)", 3.17, (1.5, 4.0), "HeteGen", metric=RATE),
    over(HETEGEN, "the same of prompts: no gain", 1.0, (1.0, 1.1), "prompts, HeteGen", "prompts", RATE),
)
ETS = "serve-ets-8b"
MADE = "output_rate"
TREES = (
    over_range(
        ETS,
        "tokens/s of steps over REBASE's, Llemma 7B and 34B, width 64 and 256",
        1.4,
        (1.2, 1.6),
        tuple(
            (f"{size}, width {width}, ETS", f"{size}, width {width}")
            for size in ("7B", "34B")
            for width in (64, 256)
        ),
        MADE,
    ),
    over(ETS, "the same, one program in flight: no gain", 1.0, (0.95, 1.1), "alone, ETS", "alone", MADE),
)
TETRIS = "serve-tetris-70b"
CHOSEN = (
    over(
        TETRIS, "tokens/s over an even share of five drafts", 1.05, (1.0, 1.15), "TETRIS", "no spread", MADE
    ),
    over(TETRIS, "the same over verifying all five", 1.09, (1.0, 1.15), "TETRIS", "five", MADE),
    ServingClaim(
        TETRIS,
        "the best of both over drafts of one to three tokens",
        1.05,
        (1.0, 1.15),
        ("one and one", "two and one", "TETRIS"),
        ("one even", "two even", "base"),
        MADE,
        alone=True,
    ),
    ServingClaim(
        TETRIS,
        "the same with draft heads",
        1.05,
        (1.0, 1.15),
        ("heads, one and one", "heads, two and one", "heads, three and one"),
        ("heads, one even", "heads, two even", "heads, three even"),
        MADE,
        alone=True,
    ),
    over(TETRIS, "the same of one sequence: no gain", 1.0, (0.85, 1.02), "one, TETRIS", "one", MADE),
)
PACKED, TARGETS = "serve-prepacking-8b", "serve-by-targets-8b"
BATCHES = (
    over(PACKED, "prompt tokens/s over padded prompts", 6.0, (1.5, 6.0), "packed", metric="input_rate"),
    over(
        PACKED,
        "the same, prompts of one length: no gain",
        1.0,
        (0.99, 1.01),
        "one length, packed",
        "one length",
        "input_rate",
    ),
    over(
        TARGETS,
        "dollars of a fixed count that meets targets",
        1.36,
        (1.0, 1.6),
        "enough",
        "by targets",
        SPENT,
    ),
    over(
        TARGETS,
        "the same at a constant load: no gain",
        1.0,
        (0.9, 1.1),
        "constant",
        "constant, by targets",
        SPENT,
    ),
)
BLOCKS, TAIL = "serve-blockllm-7b", "e2e_s.p95"
SHARED = (
    over(
        BLOCKS,
        "P95 of a GPU for each of eight models over shared blocks",
        1.5,
        (1.2, 5.0),
        "eight GPUs",
        "eight GPUs, blocks",
        TAIL,
    ),
    over(
        BLOCKS,
        "the same, all ask for one model: no gain",
        1.0,
        (0.95, 1.05),
        "one model",
        "one model, blocks",
        TAIL,
    ),
)
COPIED = "serve-copied-input-7b"
GUESSED = (
    over(COPIED, "request time over copied input", 8.0, (3.0, 9.0), "copied", "base", "e2e_s.mean"),
    over(COPIED, "request time over Jacobi's guesses", 1.38, (1.1, 1.5), "jacobi", "base", "e2e_s.mean"),
    over(COPIED, "the same, 64 sequences: no gain", 0.8, (0.3, 1.05), "64, jacobi", "64", "e2e_s.mean"),
)

DYSPEC, REQUEST = "serve-dyspec-70b", "e2e_s.mean"
GROWN = (
    over(DYSPEC, "request time without speculation over trees", 9.1, (3.0, 10.0), "DySpec", metric=REQUEST),
    over(DYSPEC, "the same of a fixed tree", 1.1, (1.0, 1.3), "DySpec", "fixed tree", REQUEST),
    over(DYSPEC, "the same of a chain of as many tokens", 1.5, (1.0, 2.5), "DySpec", "chain", REQUEST),
    over(
        DYSPEC,
        "the same of three proposals, 64 sequences in memory: no gain",
        1.0,
        (0.3, 1.05),
        "in memory, DySpec",
        "in memory",
        REQUEST,
    ),
)
CHECKED, PROGRAM = "serve-verified-8b", "program_s.mean"
BUDGETS = (
    over(
        CHECKED,
        "cost of 8 answers verified 4 times over 40 answers",
        1.0,
        (0.7, 1.4),
        "checked",
        metric=PROGRAM,
    ),
    over(
        CHECKED,
        "cost of 8 answers verified 32 times over 8 answers",
        33.0,
        (16.0, 36.0),
        "checked 32 times",
        "eight",
        PROGRAM,
    ),
    over(
        CHECKED,
        "the same, 64 problems in flight",
        33.0,
        (16.0, 36.0),
        "full, checked",
        "full, eight",
        PROGRAM,
    ),
    over(CHECKED, "cost of 40 answers with scores over none", 1.0, (1.0, 1.5), "scored", metric=PROGRAM),
    over(CHECKED, "time of a beam in five steps over whole answers", 1.0, (1.0, 2.5), "beam", metric=PROGRAM),
    over(
        CHECKED,
        "cost of scores without shared prefixes",
        1.0,
        (1.1, 4.0),
        "scored, no shared prefixes",
        "scored",
        PROGRAM,
    ),
)
CHOICE, ENDED = "serve-quality-70b", "request_rate"
QUALITIES = (
    over(CHOICE, "requests/s over the large model alone", 1.4, (1.4, 5.9), "IC-Cache", metric=ENDED),
    over(
        CHOICE,
        "request time of the large model, at 12/s",
        1.4,
        (1.39, 3.45),
        "paced, IC-Cache",
        "paced",
        REQUEST,
    ),
    ServingClaim(
        CHOICE, "mean quality, of 0.90", 0.9, (0.88, 0.9), ("IC-Cache",), (), "quality.mean", unit=""
    ),
    over(
        CHOICE,
        "requests/s where nothing resembles: no gain",
        0.5,
        (0.4, 1.05),
        "nothing resembles",
        metric=ENDED,
    ),
)
STAR, GAP = "serve-tpi-8b", "itl_s.mean"
STARS = (
    over(STAR, "time of a token with rings over stars", 7.0, (1.5, 7.0), "star", metric=GAP),
    over(STAR, "TTFT of prompts of 2,048 tokens: no gain", 0.5, (0.05, 1.0), "prompts, star", "prompts"),
    over(
        STAR,
        "time of a token on one machine over windows on eight",
        5.0,
        (2.0, 10.0),
        "window",
        "one machine",
        GAP,
    ),
    over(STAR, "the same of rings over stars: no gain", 1.0, (1.0, 1.2), "window, star", "window", GAP),
)
BOARD = "serve-orin-8b"


ALONE = "prompt alone"


def prompt_seconds(runs: ServingRuns, name: str) -> float:
    """Seconds of a prompt inside the engine, without its server."""
    run = runs.by_name[name]
    setting = make_serving(run.data, run.where, run.folder)
    return setting.pools[0].costs.steps.step(((run.data["workload"]["input"], 0),), 0, 0)


def _timed(what: str, milliseconds: float, within: float, run: str, metric: str) -> ServingClaim:
    """A claim of a time within a share of the published one."""
    band = round((1.0 - within) * milliseconds, 1), round((1.0 + within) * milliseconds, 1)

    def measured(runs: ServingRuns) -> float:
        return 1e3 * (prompt_seconds(runs, run) if metric == ALONE else runs.value(run, metric))

    return ServingClaim(BOARD, what, milliseconds, band, (), (), metric, unit=" ms", measure=measured)


BOARDS = (
    _timed("token of 8B (used with 14B's)", 100.4, 0.1, "base", GAP),
    _timed("token of 14B (used)", 186.6, 0.1, "14B", GAP),
    _timed("token of 1.5B, predicted", 23.6, 0.25, "1.5B", GAP),
    _timed("prompt of 491 tokens, 8B (used)", 404.7, 0.1, "base", ALONE),
    _timed("prompt of 508 tokens, 14B (used)", 761.3, 0.1, "14B", ALONE),
    _timed("prompt of 508 tokens, 1.5B, predicted", 86.5, 0.25, "1.5B", ALONE),
    over(BOARD, "token of eight sequences over one", 1.0, (1.0, 1.3), "eight", metric="tpot_s.mean"),
)

ELASTIC, TAIL_TTFT = "serve-elastic-30b", "ttft_s.p99"
JOINED = (
    over(ELASTIC, "mean TTFT of a restart over ranks that join", 9.0, (1.2, 10.0), "elastic", "restart"),
    over(ELASTIC, "P99 of TTFT of the same", 2.0, (1.2, 9.0), "elastic", "restart", TAIL_TTFT),
    over(ELASTIC, "requests/s over staying small", 2.0, (1.0, 3.0), "elastic", metric=ENDED),
    over(
        ELASTIC,
        "dollars at a quarter of the load: no gain",
        0.6,
        (0.4, 0.9),
        "quiet",
        "quiet, elastic",
        SPENT,
    ),
)

PLACED_CLAIMS = (
    *GUESSED,
    *STATES,
    *LOANS,
    *SPLIT,
    *TREES,
    *CHOSEN,
    *BATCHES,
    *SHARED,
    *GROWN,
    *BUDGETS,
    *QUALITIES,
    *STARS,
    *BOARDS,
    *JOINED,
)
