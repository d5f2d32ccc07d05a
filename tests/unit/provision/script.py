"""A provider's API whose answers a test gives, in their order."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

from vllm_ansible.provision.clock import Clock
from vllm_ansible.provision.transport import Answer, Api

Asked = TypeVar("Asked", bound=Api)


class Script(Generic[Asked]):
    """Answers in their order, and what was asked for them; time passes by sleeping alone."""

    def __init__(
        self, api: type[Asked], endpoint: str, intervals: Mapping[str, float], directory: Path
    ) -> None:
        self.answers: list[Answer | Exception] = []
        self.asked: list[urllib.request.Request] = []
        self.now = 1000.0
        self.slept: list[float] = []
        clock = Clock(directory / "clock", intervals, lambda: self.now, self.sleep)
        self.api = api("secret", clock, endpoint, self.sleep, self.transport)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def transport(self, request: urllib.request.Request) -> Answer:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
