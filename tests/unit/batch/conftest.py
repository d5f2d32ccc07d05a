"""A batch of prompts, sent by the command in this process to a server of ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.chat_server import KEY, MODEL, ChatServer
from vllm_ansible.batch import patience
from vllm_ansible.batch.command import main


@dataclass
class Batch:
    """A file of prompts and what answers it."""

    directory: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def output(self) -> Path:
        return self.directory / "prompts.answers.jsonl"

    @property
    def journal(self) -> Path:
        return self.directory / "prompts.answers.jsonl.sent"

    def write(self, *texts: str) -> Path:
        """Write prompts tagged a0, a1, ... of these texts."""
        path = self.directory / "prompts.json"
        content = [{"tag": f"a{number}", "prompt": text} for number, text in enumerate(texts)]
        path.write_text(json.dumps(content))
        return path

    def arguments(self, server: ChatServer, *more: str) -> list[str]:
        key = self.directory / "key"
        key.write_text(f"{KEY}\n")
        where = [str(self.directory / "prompts.json"), "--url", server.url, "--model", MODEL]
        return [*where, "--key-file", str(key), "--concurrency", "4", *more]

    def send(self, server: ChatServer, *more: str) -> tuple[int, dict[str, Any]]:
        """Return the exit status and the closing document."""
        status = main([*self.arguments(server, *more), "--json"])
        found: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return status, found

    def records(self) -> dict[str, dict[str, Any]]:
        lines = self.output.read_text().splitlines()
        return {record["tag"]: record for record in map(json.loads, lines)}


@pytest.fixture
def batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Batch:
    return Batch(tmp_path, capsys)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait a hundredth of what is usual before a second try."""
    monkeypatch.setattr(patience, "FIRST_SECONDS", 0.01)
