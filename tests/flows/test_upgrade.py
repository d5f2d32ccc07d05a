"""Two engines of one model behind a real door, changed one after the other under load."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import shutil
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.emulators.standin import ENGINES, environment

from .clone import MINUTE, Ran, wait_until
from .conftest import Site, read_json
from .processes import end_all

pytestmark = pytest.mark.soak
PLAY = "playbooks/upgrade.yml"
DOOR = 9653
KEY = "upgraded-alice-4711"
# Real vLLM has a small one of random numbers: it is the change that is looked at, not the answer.
MODELS = {"stand-in": "package:smollm2-135m-instruct", "vllm": "random:llama"}
PROBE = {"prompt": "What is the capital of France?", "expect": "Paris"}
ARGUMENTS: dict[str, Any] = {
    "max_model_len": 512,
    "dtype": "float32",
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 26,
    "max_num_seqs": 8,
}
NAMES = ("left", "right")


class Upgraded(Site):
    """Two engines of one model, and a door before them."""

    def __init__(self, directory: Path, engine: str) -> None:
        super().__init__(directory, "upg")
        self.streams = engine == "vllm"
        self.model = MODELS[engine]
        clients = directory / "clients.yml"
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        clients.write_text(yaml.safe_dump({"clients": {"alice": {"key_sha256": digest}}}))
        clients.chmod(0o600)
        self.variables = {
            "cluster_name": "upg",
            "cluster_dir": str(self.cluster_dir),
            "accelerator": "cpu",
            "accelerator_count": 2,
            "privileges": "none",
            "port_base": 28600,
            "vllm_reference_gib": 0,
            "door_clients_file": str(clients),
            "door_port": DOOR,
            "engines": self.engines(),
            # What two starved cores measure beside a load says nothing.
            "upgrade_worst_rate": 0.01,
            **({} if self.streams else environment(directory / "environment")),
        }
        self.inventory = self.wanted()

    def engines(self, **changes: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "model": self.model,
                "port": 8271 + number,
                "executor": "mp",
                "vllm_args": {**ARGUMENTS, **changes},
                **({} if self.streams else {"probe": PROBE}),
            }
            for number, name in enumerate(NAMES)
        ]

    def wanted(self, **changes: Any) -> Path:
        """Write the inventory with these arguments of both engines."""
        engines = self.engines(**changes)
        return self.clone.inventory("upg", self.hosts, **{**self.variables, "engines": engines})

    def upgrade(self, *arguments: str) -> Ran:
        # Two real engines start one after the other, beside the load: 20 min did not suffice.
        return self.start(*arguments, playbook=PLAY).result(40 * MINUTE)

    def pid(self, engine: str) -> int:
        return int(self.process(f"{engine}-serve")["process"]["pid"])

    def argument(self, engine: str, name: str) -> str:
        """Return what an engine's process was started with."""
        argv = read_json(self.cluster_dir / f"processes/{engine}-serve.json")["argv"]
        return str(argv[argv.index(name) + 1])

    @property
    def kept(self) -> Path:
        return self.cluster_dir / "upgrade.json"

    def complete(self, stream: bool) -> str:
        """Ask the door for an answer; return what was wrong with it, nothing where nothing was."""
        (certificate,) = (self.cluster_dir / "door/tls").glob("*.crt")
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", DOOR, timeout=600, context=context)
        body = {
            "model": self.model.partition(":")[2],
            "prompt": "Once",
            "max_tokens": 12,
            "ignore_eos": True,
        }
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        try:
            text = json.dumps({**body, "stream": stream})
            connection.request("POST", "/v1/completions", text, headers)
            answer = connection.getresponse()
            said = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        whole = said.rstrip().endswith("[DONE]") if stream else "choices" in said
        return "" if answer.status == 200 and whole else f"{answer.status}: {said[-200:]}"


class Load:
    """Users who ask again and again, and what went wrong."""

    def __init__(self, site: Upgraded) -> None:
        self.site, self.over = site, threading.Event()
        self.asked, self.failed = 0, list[str]()
        self.threads = [
            threading.Thread(target=self.work, args=(site.streams and number % 2 == 0,))
            for number in range(4)
        ]

    def work(self, stream: bool) -> None:
        while not self.over.is_set():
            wrong = self.site.complete(stream)
            self.asked += 1
            # Without a pause, real engines spend on this load what they need to start.
            self.over.wait(1 if self.site.streams else 0)
            if wrong:
                self.failed.append(wrong)

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        print(f"{self.asked} requests, {len(self.failed)} failed")


@pytest.fixture(scope="module", params=ENGINES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Upgraded]:
    """Serve both engines, which nothing remains of."""
    made = Upgraded(tmp_path_factory.mktemp("upgrade"), request.param)
    try:
        ran = made.run("--skip-tags", "verify", playbook="site.yml")
        assert ran.status == 0, ran.output
        yield made
    finally:
        end_all(made.cluster_dir)
        shutil.rmtree(made.cluster_dir, ignore_errors=True)
        shutil.rmtree(made.run_dir, ignore_errors=True)


@pytest.fixture
def load(served: Upgraded) -> Iterator[Load]:
    """Hold each change to this: no request fails, and there are some."""
    with Load(served) as running:
        yield running
    assert running.failed == []
    assert running.asked > 10


def test_an_argument_is_changed_and_no_request_fails(served: Upgraded, load: Load) -> None:
    served.wanted(max_num_seqs=6)
    ran = served.upgrade()
    assert ran.status == 0, ran.output
    assert [served.argument(name, "--max-num-seqs") for name in NAMES] == ["6", "6"]
    assert [one["values"]["engines"] for one in ran.evidence("upgrade")] == [[*NAMES]]
    assert len(ran.evidence("upgrade_rate")) == 2
    assert not served.kept.exists()


def test_a_second_run_finds_nothing_to_upgrade(served: Upgraded) -> None:
    served.wanted(max_num_seqs=6)
    ran = served.upgrade()
    assert ran.status == 0, ran.output
    assert ran.changed == []
    (evidence,) = ran.evidence("upgrade")
    assert evidence["summary"].startswith("nothing to upgrade")


def test_an_argument_that_the_engine_refuses_is_taken_back(served: Upgraded, load: Load) -> None:
    # A cache of no more than a few tokens: seen by the engine alone, when it starts.
    served.wanted(max_num_seqs=6, kv_cache_memory_bytes=1 << 18)
    right = served.pid("right")
    failure = served.upgrade().of("failure")[-1]
    assert failure["msg"].startswith(
        "left: check failed: its upgrade. It has its former specification back and serves."
    )
    assert "No answer from left" in failure["msg"]
    assert served.argument("left", "--kv-cache-memory-bytes") == str(1 << 26)
    assert served.pid("right") == right
    assert not served.kept.exists()


def test_a_run_that_was_killed_is_ended_by_the_next(served: Upgraded, load: Load) -> None:
    served.wanted(max_num_seqs=4)
    left = served.pid("left")
    running = served.start(playbook=PLAY)

    def restarting() -> bool:
        assert running.process.poll() is None, running.console.read_text()
        with contextlib.suppress(FileNotFoundError):
            return served.kept.exists() and served.pid("left") != left
        return False

    wait_until(restarting, 20 * MINUTE, "start of the first engine")
    running.kill()
    assert json.loads(served.kept.read_text())["engine"] == "left"
    ran = served.upgrade("-e", "break_lock=true")
    assert ran.status == 0, ran.output
    assert [served.argument(name, "--max-num-seqs") for name in NAMES] == ["4", "4"]
    assert not served.kept.exists()


def test_an_engine_that_is_too_slow_is_taken_back(served: Upgraded, load: Load) -> None:
    served.wanted(max_num_seqs=5)
    figures = read_json(served.cluster_dir / "evidence/benchmark-left.json")
    failure = served.upgrade("-e", "upgrade_worst_rate=1000").of("failure")[-1]
    assert "check failed: output tokens/s of left" in failure["msg"]
    assert served.argument("left", "--max-num-seqs") == "4"
    assert read_json(served.cluster_dir / "evidence/benchmark-left.json") == figures


def test_who_answers_for_no_one_waits_for_a_word(served: Upgraded) -> None:
    engines = [{**one, "served_name": "other"} for one in served.engines(max_num_seqs=6)]
    variables = {**served.variables, "engines": engines}
    served.clone.inventory("upg", served.hosts, **variables)
    before = [served.pid(name) for name in NAMES]
    ran = served.upgrade()
    failure = ran.failure
    assert (
        f"who answers for {served.model.partition(':')[2]} while right restarts" in failure["msg"]
    )
    assert "upgrade_interrupt=true" in failure["fix"]
    assert [served.pid(name) for name in NAMES] == before


def test_check_says_what_would_change_and_touches_nothing(served: Upgraded) -> None:
    seats = served.argument("left", "--max-num-seqs")
    served.wanted(max_num_seqs=3)
    before = [served.pid(name) for name in NAMES]
    ran = served.upgrade("--check")
    assert ran.status == 0, ran.output
    (evidence,) = ran.evidence("upgrade")
    assert evidence["summary"].startswith("would upgrade left, while right answers (here: ")
    assert f"{seats} becomes 3" in evidence["summary"]
    assert [served.pid(name) for name in NAMES] == before
    assert not served.kept.exists()
