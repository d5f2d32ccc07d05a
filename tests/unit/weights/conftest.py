"""The program that talks to the hub, run whole against the hub's emulator."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.flows.clone import wait_until
from vllm_ansible.node.weights.programs import write

from ...emulators.hub import Line
from ...emulators.object_storage import ObjectStorage
from .objects import BUCKET, PREFIX, SECRET, sums
from .program import PROGRAM

ROOT = Path(__file__).parents[3]
MODEL = "org/model"
SHARD = 3 * 2**20
SHARDS = [f"model-{number}-of-4.safetensors" for number in (1, 2, 3, 4)]


def taken(ports: tuple[int, ...]) -> bool:
    """Tell whether all that was sent over connections of these ports has been read."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, near, far, _, queues, *_ = line.split()
        ends = {int(end.rpartition(":")[2], 16) for end in (near, far)}
        if ends.intersection(ports) and queues != "00000000:00000000":
            return False
    return True


def hold(line: Line, *ports: int) -> None:
    """Send nothing more, and wait until the program has read what was on its way."""
    line.rate = 1
    wait_until(lambda: taken(ports), 120, "an end of what was sent")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model of four shards, with what else repositories hold."""
    directory = tmp_path_factory.mktemp("repository")
    numbers = random.Random(1)  # noqa: S311  content, no secret
    sizes = {"config.json": 400, "tokenizer/vocab.txt": 5000, "empty.txt": 0}
    unwanted = {".gitattributes": 20, "original/weights.pth": 30, "pytorch_model.bin": 40}
    for name, size in {**sizes, **unwanted, **dict.fromkeys(SHARDS, SHARD)}.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(numbers.randbytes(size))
    return directory


@dataclass
class Ran:
    """What the program wrote."""

    lines: list[dict[str, Any]]
    printed: str
    status: int

    def said(self, kind: str) -> list[Any]:
        """Return the messages of one kind, in order."""
        return [line[kind] for line in self.lines if kind in line]

    @property
    def result(self) -> dict[str, Any]:
        """Return the result of a run that ended well."""
        assert self.status == 0, self.printed
        result: dict[str, Any] = self.lines[-1]["result"]
        return result

    @property
    def failure(self) -> tuple[str, dict[str, str]]:
        """Return the one sentence of a run that did not, and its details."""
        assert self.status == 1, self.printed
        assert list(self.lines[-1]) == ["failed", "details"], self.printed
        assert set(self.lines[-1]["details"]) == {"expected", "found", "where", "fix"}
        return self.lines[-1]["failed"], self.lines[-1]["details"]


@dataclass
class Program:
    """The program on one host: its directory, its variables."""

    directory: Path
    url: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """Return where it downloads to."""
        return self.directory / "out"

    def token(self, token: str) -> None:
        """Give the host a token, as a file."""
        (self.directory / "token").write_text(token)
        self.variables["HF_TOKEN_PATH"] = str(self.directory / "token")

    def start(
        self, request: dict[str, Any], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        """Start it on a request."""
        (self.directory / "request.json").write_text(json.dumps(request))
        variables = {
            "PATH": os.environ["PATH"],
            "HF_HOME": str(self.directory / "home"),
            "HF_ENDPOINT": self.url,
            **self.variables,
        }
        # Written out on its own, as on hosts.
        main = write(str(self.directory / "program"), PROGRAM)
        return subprocess.Popen(
            [sys.executable, main, self.directory / "request.json"],
            env=variables,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, request: dict[str, Any]) -> Ran:
        """Run it to the end."""
        with self.start(request) as process:
            printed, errors = process.communicate(timeout=300)
        lines = [json.loads(line) for line in printed.splitlines()]
        return Ran(lines, printed + errors, process.returncode)

    def manifest(self, **more: Any) -> Ran:
        """Ask what the model consists of."""
        return self.run({"action": "manifest", "model": MODEL, "revision": "", **more})

    def fetching(self, found: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Return the request for everything a manifest lists."""
        return {
            "action": "fetch",
            "model": MODEL,
            "revision": found["revision"],
            "directory": str(self.out),
            "files": [one["name"] for one in found["files"]],
            "bytes": {one["name"]: one["bytes"] for one in found["files"]},
            "workers": 2,
            "stall_seconds": 10,
            **more,
        }


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the program on a host that never had the model."""
    return Program(tmp_path)


@pytest.fixture
def same(tree: Path, program: Program) -> Callable[[], bool]:
    """Tell whether what was downloaded is what the repository holds."""

    def compare() -> bool:
        names = ["config.json", "tokenizer/vocab.txt", "empty.txt", *SHARDS]
        return all(
            (program.out / name).read_bytes() == (tree / name).read_bytes() for name in names
        )

    return compare


@pytest.fixture
def storage(tree: Path, program: Program) -> Iterator[ObjectStorage]:
    """Give a store with the model in it, and the host a file of credentials."""
    file = program.directory / "credentials"
    file.write_text(f"[default]\naws_access_key_id = AKIAGOOD\naws_secret_access_key = {SECRET}\n")
    with ObjectStorage({"AKIAGOOD"}) as storage:
        storage.bucket(BUCKET)
        for path in tree.rglob("*"):
            if path.is_file():
                storage.put(BUCKET, f"{PREFIX}/{path.relative_to(tree)}", path.read_bytes())
        storage.put(BUCKET, f"{PREFIX}-other/config.json", b"of another model")
        storage.put(BUCKET, f"{PREFIX}/SHA256SUMS", sums(tree))
        program.variables |= {
            "AWS_ENDPOINT_URL": storage.url,
            "AWS_SHARED_CREDENTIALS_FILE": str(file),
            "AWS_EC2_METADATA_DISABLED": "true",  # this machine may have a role of its own
            "HOME": str(program.directory),
        }
        yield storage
