"""Other clients and other settings reach a running door, and no request in flight ends by it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.emulators.metered_engine import KEY, MeteredEngine
from vllm_ansible.door.clients import map_lines
from vllm_ansible.node.engine import haproxy_door as control
from vllm_ansible.node.engine import router

from .running import ALICE, Running, client, wait_until


class InFlight:
    """A stream that is under way while something else happens."""

    def __init__(self, running: Running, key: str = ALICE, pieces: int = 20) -> None:
        self.text, self._running, self._key, self._pieces = "", running, key, pieces
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> InFlight:
        before = self._asked()
        self._thread.start()
        wait_until(lambda: self._asked() > before)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)

    def _asked(self) -> int:
        return sum(len(engine.bodies) for engine in self._running.engines)

    def _work(self) -> None:
        body = {"stream": True, "max_tokens": self._pieces, "pause": 0.05}
        self.text = self._running.chat(self._key, **body)[1]


def replace(running: Running, **clients: Any) -> None:
    path = str(running.directory / "clients.map")
    control.replace(running.admin, path, control.entries(map_lines(clients)))
    assert control.clients(running.admin, path) == control.entries(map_lines(clients))


def test_a_key_that_is_revoked_ends_no_request_and_opens_none(
    door: Callable[..., Running],
) -> None:
    running = door(clients={"alice": client(ALICE), "bob": client("bob-key")})
    kept = running.connect()
    with InFlight(running) as alice, InFlight(running, "bob-key") as bob:
        replace(running, bob=client("bob-key", requests_per_minute=1), carol=client("carol-key"))
        assert running.code() == (401, "invalid_api_key")
        assert running.code("bob-key") == (429, "rate_limit_exceeded")
        assert running.code("carol-key") == (200, "")
    for stream in (alice, bob):
        assert stream.text.endswith("data: [DONE]\n\n")
    kept.close()


def test_many_clients_are_replaced_at_once(door: Callable[..., Running]) -> None:
    running = door()
    many = {f"client-{number}": client(f"key-{number}") for number in range(333)}
    replace(running, **many)
    assert [running.code(f"key-{number}")[0] for number in (0, 332)] == [200, 200]
    assert running.code()[0] == 401
    replace(running)
    assert running.code("key-0")[0] == 401


def test_a_reload_serves_another_model_and_ends_no_request(door: Callable[..., Running]) -> None:
    running = door()
    with MeteredEngine("new") as engine:
        running.engines.append(engine)
        with InFlight(running) as stream:
            running.write("second")
            control.reload(f"{running.run_dir}/master.sock")
            assert control.wait(running.admin, "second", 120) == "second"
            wait_until(lambda: running.code(model="new")[0] == 200)
            assert running.code() == (200, "")
        running.engines.pop()
    assert stream.text.endswith("data: [DONE]\n\n")


def test_a_reload_keeps_counts_and_those_of_requests_that_end_after_it(
    door: Callable[..., Running],
) -> None:
    """7 + 20 tokens of a stream that the old worker ends: the new one knows them."""
    running = door(
        clients={
            "alice": client(ALICE, tokens_per_day=27),
            "bob": client("bob-key", requests_per_minute=2),
        }
    )
    assert running.code("bob-key")[0] == 200
    with InFlight(running):
        running.write("second")
        control.reload(f"{running.run_dir}/master.sock")
        assert control.wait(running.admin, "second", 120) == "second"
    wait_until(lambda: running.code()[0] == 429)
    assert [running.code("bob-key")[0] for _ in range(2)] == [200, 429]


def test_settings_that_haproxy_refuses_leave_the_worker_as_it_is(
    door: Callable[..., Running],
) -> None:
    running = door()
    (running.directory / "haproxy.cfg").write_text("nonsense\n")
    control.reload(f"{running.run_dir}/master.sock")
    assert control.wait(running.admin, "second", 1) == "first"
    assert running.code() == (200, "")


def test_an_engine_that_drains_ends_what_it_has_and_gets_no_more(
    door: Callable[..., Running],
) -> None:
    running = door(models=("m", "m"))
    with InFlight(running) as stream:
        (number,) = [place for place, one in enumerate(running.engines) if one.bodies]
        holder, other = running.engines[number], running.engines[1 - number]
        command = f"set server model0/engine{number} state"
        assert router.ask(running.admin, f"{command} drain").strip() == ""
        assert [running.code()[0] for _ in range(4)] == [200] * 4
        assert (len(holder.bodies), len(other.bodies)) == (1, 4)
    assert stream.text.endswith("data: [DONE]\n\n")
    router.ask(running.admin, f"{command} ready")
    assert [running.code()[0] for _ in range(4)] == [200] * 4
    assert len(holder.bodies) > 1


def test_no_key_and_no_prompt_is_where_others_read(door: Callable[..., Running]) -> None:
    running = door()
    assert running.chat(messages=[{"role": "user", "content": "a secret prompt"}])[0] == 200
    assert running.code("wrong-key-0815")[0] == 401
    assert running.process is not None
    running.write("second")
    control.reload(f"{running.run_dir}/master.sock")
    assert control.wait(running.admin, "second", 120) == "second"
    said = running.log.read_bytes()
    said += b"".join(path.read_bytes() for path in running.journals.iterdir())
    master = running.process.pid
    children = f"/proc/{master}/task/{master}/children"
    workers = Path(children).read_text().split()
    read = 0
    for pid in (str(master), *workers):
        with suppress(ProcessLookupError, FileNotFoundError):  # the old worker may end just now
            said += b"".join(Path("/proc", pid, one).read_bytes() for one in ("cmdline", "environ"))
            read += 1
    assert read > 1
    for secret in (KEY, ALICE, "wrong-key-0815", "a secret prompt"):
        assert secret.encode() not in said, secret
    for name in ("admin.sock", "master.sock"):
        assert (running.run_dir / name).stat().st_mode & 0o077 == 0, name


def test_the_access_log_says_what_each_request_was(door: Callable[..., Running]) -> None:
    running = door(clients={"alice": client(ALICE, requests_per_minute=2)}, models=('m"',))
    for stream in (False, True):
        assert running.chat(model='m"', stream=stream, max_tokens=3)[0] == 200
    assert running.chat(model='m"')[0] == 429
    assert running.chat("wrong")[0] == 401
    assert running.ask("GET", "/health")[0] == 200
    wait_until(lambda: len(running.entries()) == 4)
    kept = ("client", "endpoint", "model", "status", "refusal", "tokens_in", "tokens_out")
    found = [tuple(one[name] for name in kept) for one in running.entries()]
    path = "/v1/chat/completions"
    assert found == [
        ("alice", path, 'm"', 200, "-", 7, 3),
        ("alice", path, 'm"', 200, "-", 7, 3),
        ("alice", path, 'm"', 429, "rate_limit_exceeded", 0, 0),
        ("-", "-", "-", 401, "invalid_api_key", 0, 0),
    ]
    for one in running.entries()[:2]:
        assert 0 <= one["ttft_ms"] <= one["duration_ms"] + 1
