"""A short ladder of loads on a live OpenAI-compatible server: ``mw.observe``.

Every client of a level sends its next request when the last one has ended. Prompts are random words, which
no prefix cache knows. The file is JSON Lines with the keys of ``vllm bench serve --append-result``, which
``meshwright learn`` reads.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from threading import Lock
from typing import Any

from core.errors import InputError
from core.files import write_text
from meshwright.observations.completions import Answer, Server
from meshwright.result_base import PICTURES, Result

LADDER = (1, 4, 16)
"""Default concurrencies."""
ROUNDS = 4
"""Requests of a client at each level, at most."""
LEAST = 8
"""Requests of a level, at least."""
MOST_CLIENTS, MOST_REQUESTS, MOST_SECONDS, MOST_TOKENS = 512, 10_000, 3600.0, 2**17
REQUESTS, SECONDS, PROMPT, OUTPUT = 200, 120.0, 512, 128
TOKENS_A_WORD = 1.3
"""Tokens of a short English word with the blank before it, about; the server counts them."""
WORDS = (
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "inlet",
    "kelp",
    "maple",
    "river",
)
SEED = 2026
LEAST_DEADLINE_S = 10.0
"""Least time that a request may take, however few seconds are left to send others."""


@dataclass(frozen=True, eq=False, repr=False)
class Observation(Result):
    """Measured levels of a server, as results of ``vllm bench serve``.

    Attributes:
        results: one mapping a level.
        cut: whether requests or seconds ran out before the last level had ended.
    """

    results: Sequence[dict[str, Any]]
    cut: bool

    title = "Measured levels of a server"

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.results

    def _figure(self) -> dict[str, Any]:
        from meshwright.pages.answers import lines_figure

        clients, tokens = "max_concurrency", "output_throughput"
        points = [result[clients] for result in self.results], [result[tokens] for result in self.results]
        return lines_figure("clients", "output tokens/s", {"measured": points})

    def save(self, path: str | Path) -> Path:
        """Write the results as JSON Lines; a page, a picture or a table by its suffix (`Result.save`).

        Raises:
            InputError: the file cannot be written.
        """
        if Path(path).suffix in (".html", ".csv", *PICTURES):
            return super().save(path)
        write_text(Path(path), "".join(json.dumps(result) + "\n" for result in self.results))
        return Path(path)

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.learned_servers import observed_tables

        return observed_tables(self.results, self.cut)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright observe --json``."""
        return {"observed": list(self.results), "cut_short": self.cut}


def observe(
    url: str,
    *,
    model: str | None = None,
    concurrency: Sequence[int] = LADDER,
    isl: int = PROMPT,
    osl: int = OUTPUT,
    requests: int = REQUESTS,
    seconds: float = SECONDS,
    progress: Callable[[float], None] | None = None,
) -> Observation:
    """Measure a live OpenAI-compatible server at a short ladder of concurrencies.

    Args:
        url: of the server, as ``http://host:8000``.
        model: name; by default the first that the server lists.
        concurrency: clients of each level.
        isl, osl: tokens of a prompt, about, and of an output.
        requests: sent in all, at most; one more warms the server up.
        seconds: after which no request is sent.
        progress: called with the finished share.

    Raises:
        InputError: a wrong argument, no answer, or a stream without tokens or their count.
    """
    _check(concurrency, isl, osl, requests, seconds)
    server = Server(url, max(seconds, LEAST_DEADLINE_S))
    name = model or server.model()
    prompts = _prompts(isl)
    end = time.monotonic() + seconds
    server.complete(name, next(prompts), min(osl, LEAST))
    results, left, cut = [], requests, False
    for number, clients in enumerate(concurrency):
        target = max(ROUNDS * clients, LEAST)
        count = min(target, left)
        began = time.perf_counter()
        answers = _level(server, name, prompts, clients, count, osl, end) if count else []
        took = time.perf_counter() - began
        left -= len(answers)
        cut = cut or len(answers) < target
        if len(answers) >= clients:
            results.append(_result(name, clients, answers, took))
        if progress:
            progress((number + 1) / len(concurrency))
    if not results:
        raise InputError(f"no level ended within {seconds:g} s and {requests:,} requests", url)
    return Observation(results, cut)


def _check(concurrency: Sequence[int], isl: int, osl: int, requests: int, seconds: float) -> None:
    """Refuse loads without bounds.

    Raises:
        InputError: a value that is too small or too large.
    """
    if not concurrency:
        raise InputError("must hold a number of clients, found none", "concurrency")
    limits: list[tuple[str, float, float, float]] = [
        ("concurrency", clients, 1, MOST_CLIENTS) for clients in concurrency
    ]
    limits += [("isl", isl, 1, MOST_TOKENS), ("osl", osl, 2, MOST_TOKENS)]
    limits += [("requests", requests, 1, MOST_REQUESTS), ("seconds", seconds, 1, MOST_SECONDS)]
    for name, value, least, largest in limits:
        if not least <= value <= largest:
            raise InputError(f"must be from {least:,} to {largest:,}, found {value:,}", name)


def _prompts(tokens: int) -> Iterator[str]:
    """Prompts of random words, all different."""
    draw = random.Random(SEED)
    words = max(round(tokens / TOKENS_A_WORD), 1)
    while True:
        yield " ".join(draw.choices(WORDS, k=words))


def _level(
    server: Server, model: str, prompts: Iterator[str], clients: int, count: int, tokens: int, end: float
) -> list[Answer]:
    """Answers of one level; ``clients`` threads share ``count`` requests until ``end``."""
    texts, answers, lock = [next(prompts) for _ in range(count)], [], Lock()

    def client() -> None:
        while time.monotonic() < end:
            with lock:
                if not texts:
                    return
                text = texts.pop()
            answer = server.complete(model, text, tokens)
            with lock:
                answers.append(answer)

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(client) for _ in range(clients)]:
            done.result()
    return answers


def _result(model: str, clients: int, answers: Sequence[Answer], took_s: float) -> dict[str, Any]:
    """A level with the keys of ``vllm bench serve``."""
    first = [answer.first_s for answer in answers]
    token = [answer.token_s for answer in answers]
    outputs = sum(answer.output for answer in answers)
    return {
        "backend": "openai",
        "label": "meshwright observe",
        "model_id": model,
        "request_rate": "inf",
        "max_concurrency": clients,
        "num_prompts": len(answers),
        "completed": len(answers),
        "duration": took_s,
        "total_input_tokens": sum(answer.prompt for answer in answers),
        "total_output_tokens": outputs,
        "request_throughput": len(answers) / took_s,
        "output_throughput": outputs / took_s,
        "mean_ttft_ms": 1e3 * fmean(first),
        "median_ttft_ms": 1e3 * median(first),
        "mean_tpot_ms": 1e3 * fmean(token),
        "median_tpot_ms": 1e3 * median(token),
    }
