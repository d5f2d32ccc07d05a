"""Send all prompts that have no answer yet, so many at once, and keep what comes."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from vllm_ansible.frozen import frozen

from .answers import Answer
from .client import Client, Hopeless, Limits, Passing, Refused, Target, Unsent
from .patience import Patience, backoff, chance
from .prompts import Prompt
from .results import Results, Unnoted


@frozen
class Settings:
    """How prompts are sent; retries is how often one is sent again, patience is seconds."""

    concurrency: int
    stream: bool
    limits: Limits
    retries: int
    patience: float


@dataclass
class Tally:
    """What this run has come to so far; latencies are milliseconds."""

    answered: int = 0
    failed: int = 0
    again: int = 0
    in_flight: int = 0
    waiting: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    ttft: array[float] = field(default_factory=lambda: array("d"))
    itl: array[float] = field(default_factory=lambda: array("d"))
    total: array[float] = field(default_factory=lambda: array("d"))

    def add(self, answer: Answer) -> None:
        """Count one answer."""
        self.answered += 1
        self.prompt_tokens += answer.prompt_tokens or 0
        self.completion_tokens += answer.completion_tokens or 0
        self.uncounted += answer.completion_tokens is None
        self.total.append(answer.total_ms)
        if answer.ttft_ms is not None:
            self.ttft.append(answer.ttft_ms)
        if answer.itl_ms_median is not None:
            self.itl.append(answer.itl_ms_median)


class Sender:
    """Sends prompts; `tally` can be watched meanwhile."""

    def __init__(self, target: Target, settings: Settings, results: Results) -> None:
        self.tally = Tally()
        self._target, self._settings, self._results = target, settings, results
        self._patience = Patience(settings.patience)

    async def send(self, prompts: Iterable[Prompt]) -> None:
        """Send the prompts that have no answer yet; raises Hopeless where none can be answered."""
        model = self._target.model
        left = (one for one in prompts if self._results.lacks(one.tag, one.digest(model)))
        settings = self._settings
        client = Client(
            self._target,
            settings.limits,
            settings.concurrency,
            settings.stream,
            self._patience.heard,
        )
        async with client:
            workers = [
                asyncio.create_task(self._work(client, left)) for _ in range(settings.concurrency)
            ]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, client: Client, left: Iterator[Prompt]) -> None:
        """Send one prompt after the other: a worker for each request that may be in flight."""
        for prompt in left:
            record = await self._one(client, prompt)
            await self._results.add(record)

    async def _one(self, client: Client, prompt: Prompt) -> dict[str, Any]:
        """Return the record of one prompt, answered or given up."""
        failures: list[str] = []
        unsent = 0
        while True:
            await self._turn()
            began = datetime.now(UTC)
            try:
                answer = await self._ask(client, prompt)
            except Refused as error:
                failures.append(str(error))
                return self._given_up(prompt, failures, began)
            except Passing as error:
                failures.append(str(error))
                if len(failures) > self._settings.retries:
                    return self._given_up(prompt, failures, began)
                await self._pause(len(failures), error.after, str(error))
            except Unsent as error:
                unsent += 1
                await self._pause(unsent, None, str(error), of_all=True)
            else:
                self._patience.heard()
                self.tally.waiting = ""
                self.tally.add(answer)
                return {**self._record(prompt, failures, began), "ok": True, **asdict(answer)}

    async def _ask(self, client: Client, prompt: Prompt) -> Answer:
        self.tally.in_flight += 1
        try:
            return await client.ask(prompt, lambda: self._sending(prompt.tag))
        except Unnoted as error:
            raise error.error from error
        finally:
            self.tally.in_flight -= 1

    def _sending(self, tag: str) -> None:
        self._results.sending(tag)
        self.tally.again += self._results.sent(tag) > 1

    async def _turn(self) -> None:
        """Wait until anybody may send."""
        while seconds := self._patience.left():
            await asyncio.sleep(seconds)

    async def _pause(
        self, failures: int, asked: float | None, words: str, of_all: bool = False
    ) -> None:
        """Wait before the next try, all together where the server asked for it or is not there."""
        self.tally.waiting = words
        seconds = backoff(failures, asked, chance)
        # A request in flight may yet be answered: one in one piece gives no sign until its end.
        over = self._patience.over() and not self.tally.in_flight
        if over or (asked or 0.0) > self._patience.seconds:
            raise Hopeless(
                f"{words}, {self._patience.silence():.0f} s after the last sign of life"
                + (f"; it asks to wait {asked:.0f} s" if asked else ""),
                "see that the engine runs (vllm-ansible status), then the same command again",
            )
        if asked is not None or of_all:
            self._patience.hold(seconds)
        else:
            await asyncio.sleep(seconds)

    def _given_up(self, prompt: Prompt, failures: list[str], began: datetime) -> dict[str, Any]:
        self.tally.failed += 1
        return {**self._record(prompt, failures, began), "ok": False, "error": failures[-1]}

    def _record(self, prompt: Prompt, failures: list[str], began: datetime) -> dict[str, Any]:
        return {
            "tag": prompt.tag,
            "digest": prompt.digest(self._target.model),
            "model": self._target.model,
            "sent": self._results.sent(prompt.tag),
            "failures": list(failures),
            "sent_at": began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
