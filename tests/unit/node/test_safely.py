"""Root works among what a service owns while the service does what it can, as a real second user.

Needs root: the tests of CI run as root. Without it there is no second user, and nothing to gain.
"""

from __future__ import annotations

import json
import os
import pwd
import random
import socket
import struct
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import forked, launcher, safely
from vllm_ansible.node.engine import benchmark, evidence, router
from vllm_ansible.node.failure import Failure
from vllm_ansible.node.log_file import end_of
from vllm_ansible.node.process import process
from vllm_ansible.node.process.process import ProcessError

from .service import NOBODY, Roots, acting, everything, exchange, swaps

Module = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root and a second user")
SECONDS = 1.0
SOAK_SECONDS = 180.0


@pytest.fixture
def open_place(nobodys: Path) -> Iterator[Path]:
    """Give a directory of root's that anybody can enter, as /opt and /run are."""
    os.chown(nobodys, 0, 0)
    nobodys.chmod(0o755)
    yield nobodys


@pytest.fixture
def roots(open_place: Path) -> Roots:
    return Roots(open_place)


@pytest.fixture
def engine(open_place: Path) -> Path:
    """Give the directory of an engine, which is the service's, in one that is root's."""
    engine = open_place / "engines/a"
    engine.mkdir(parents=True)
    os.chown(engine, NOBODY, NOBODY)
    return engine


def for_a_while(act: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Do something again and again for so long, and some twenty times on any machine."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end or count < 20:
        act()
        count += 1


def test_no_directory_of_root_is_given_away(run_module: Module, engine: Path, roots: Roots) -> None:
    directories = [str(engine), f"{engine}/cache", f"{engine}/cache/inside"]
    args = {"directories": directories, "owner": "nobody"}
    with acting(swaps(engine, "cache", roots.directory)):
        for_a_while(lambda: run_module("cluster_directories", args, []))
    assert roots.untouched()


def test_no_secret_is_written_or_removed_behind_a_link(
    run_module: Module, engine: Path, roots: Roots
) -> None:
    args = {
        "directory": str(engine),
        "owner": "nobody",
        "contents": {"config/key": "k-123456"},
        "absent": ["config/secret"],
    }
    with acting(swaps(engine, "config", roots.directory)):
        for_a_while(lambda: run_module("secret_files", args, []))
    assert roots.untouched()


def test_no_fifo_in_the_place_of_a_directory_holds_who_removes_it(
    engine: Path, roots: Roots
) -> None:
    """It may be one when it is opened, and have been a directory when it was looked at."""
    cache, fifo = str(engine / "cache"), str(engine / ".fifo")

    def swap() -> None:
        for make in (lambda: os.mkdir(cache), lambda: os.mkfifo(fifo)):
            with suppress(OSError):
                make()
        for name in ("a", "b"):
            with suppress(OSError):
                os.symlink(roots.directory, f"{cache}/{name}")
            with suppress(OSError):
                os.mkfifo(f"{cache}/{name}.fifo")
        for _ in range(20):
            exchange(cache, fifo)

    def remove() -> None:
        with suppress(OSError):
            safely.remove_tree(cache)

    def works(tell: forked.Tell) -> None:
        for_a_while(remove)
        tell("removed", True)

    with acting(swap):
        assert forked.run_each([works], 300.0, Exception) == [{"removed": True}]
    assert roots.untouched()
    safely.remove_tree(str(engine))
    assert not engine.exists()


@pytest.mark.parametrize("kind", ["link", "link above"])
def test_no_socket_of_root_is_asked_in_the_place_of_haproxys(
    open_place: Path, roots: Roots, kind: str
) -> None:
    """Root would say there what it says to HAProxy: another daemon may obey."""
    run = open_place / "run"
    run.mkdir()
    os.chown(run, NOBODY, NOBODY)
    theirs = str(roots.directory / "admin.sock")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(theirs)
        daemon.listen()
        daemon.setblocking(False)
        path = run / "admin.sock"
        if kind == "link":
            path.symlink_to(theirs)
        else:
            (run / "door").symlink_to(roots.directory)
            path = run / "door/admin.sock"
        with pytest.raises(Failure, match="does not answer"):
            router.ask(str(path), "show stat", 5)
        with pytest.raises(BlockingIOError):
            daemon.accept()


def test_haproxy_is_asked_by_who_could_put_another_in_its_place(open_place: Path) -> None:
    run = open_place / "run"
    run.mkdir()
    path = str(run / "admin.sock")
    with socket.socket(socket.AF_UNIX) as haproxy:
        haproxy.bind(path)
        haproxy.listen()
        for one in (str(run), path):
            os.chown(one, NOBODY, NOBODY)
        os.chmod(path, 0o600)
        asked: list[int] = []

        def answer() -> None:
            connection, _ = haproxy.accept()
            with connection:
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                asked.append(struct.unpack("3i", peer)[1])
                connection.recv(100)
                connection.sendall(b"words\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert router.ask(path, "show info", 120) == "words\n"
        thread.join(120)
    assert asked == [NOBODY]


def test_a_directory_of_any_depth_is_removed(engine: Path, tmp_path: Path) -> None:
    """A thousand descriptors, or calls within each other, are fewer than a service can make."""
    place = os.open(engine, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    (engine / "file").write_text("words")
    (engine / "closed").mkdir(mode=0)
    (engine / "link").symlink_to(tmp_path)
    safely.remove_tree(str(engine))
    assert not engine.exists() and tmp_path.exists()


def test_who_fills_a_directory_faster_is_named(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safely, "REMOVAL_SECONDS", 0.0)
    (engine / "file").write_text("words")
    with pytest.raises(
        OSError, match=f"not empty after 0 s: it is slow, or a process fills it: '{engine}'"
    ):
        safely.remove_tree(str(engine))


@pytest.mark.parametrize("what", ["session", "logs", "file", "hard link", "directory"])
def test_no_file_of_root_is_read_as_a_log_of_ray(open_place: Path, roots: Roots, what: str) -> None:
    run = open_place / "run"
    ray = run / "0"
    logs = ray / "session_1/logs"
    logs.mkdir(parents=True)
    (logs / "raylet.err").write_text("died\n")
    (ray / "session_latest").symlink_to("session_1")
    for path in (run, ray, ray / "session_1", logs, logs / "raylet.err"):
        os.chown(path, NOBODY, NOBODY)
    found = evidence.tails({}, "a", str(ray), 1000)
    assert found == {"a-ray-raylet.err": "died\n"}
    stolen = roots.directory / "raylet.err"
    roots.file.rename(stolen)
    # What protected_hardlinks may forbid to the service is laid by root here.
    (logs / "raylet.err").unlink()
    if what == "session":
        (roots.directory / "logs").mkdir()
        stolen.rename(roots.directory / "logs/raylet.err")
        (ray / "session_latest").unlink()
        (ray / "session_latest").symlink_to(roots.directory)
    elif what == "logs":
        logs.rmdir()
        logs.symlink_to(roots.directory)
    elif what == "file":
        (logs / "raylet.err").symlink_to(stolen)
    elif what == "hard link":
        os.link(stolen, logs / "raylet.err")
    else:
        ray.rename(run / "1")
        ray.symlink_to(run / "1")
        logs = run / "1/session_1/logs"
        (logs / "raylet.err").symlink_to(stolen)
    text = str(evidence.tails({}, "a", str(ray), 1000))
    assert Roots.SECRET not in text
    if what == "directory":
        assert "Ray's logs cannot be read" in text and "does not follow it" in text


def test_a_fifo_in_the_place_of_a_log_holds_nobody(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = open_place / "run/0"
    logs = ray / "session_latest/logs"
    logs.mkdir(parents=True)
    os.mkfifo(logs / "raylet.err")
    monkeypatch.setattr(safely, "SECONDS", 240.0)
    began = time.monotonic()
    assert end_of(str(logs / "raylet.err"), 0, 100) == (b"", 0)
    assert evidence.tails({}, "a", str(ray), 1000) == {}
    assert time.monotonic() - began < 120


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo"])
def test_a_log_that_is_something_else_is_not_read(engine: Path, roots: Roots, kind: str) -> None:
    path = engine / "log"
    if kind == "link":
        path.symlink_to(roots.file)
    elif kind == "hard link":
        os.link(roots.file, path)
    else:
        os.mkfifo(path)
    assert end_of(str(path), 0, 100) == (b"", 0)
    (engine / "own").write_text("words")
    os.chown(engine / "own", NOBODY, NOBODY)
    assert end_of(str(engine / "own"), 0, 100) == (b"words", 0)


@pytest.mark.parametrize("kind", ["link", "link above", "hard link", "fifo"])
def test_the_result_of_a_measurement_is_not_roots(engine: Path, roots: Roots, kind: str) -> None:
    cache, stolen = engine / "cache", roots.directory / "benchmark.json"
    cache.mkdir()
    os.chown(cache, NOBODY, NOBODY)
    stolen.write_text('{"secret": "words"}')
    roots.see()
    result = cache / "benchmark.json"
    if kind == "link":
        result.symlink_to(stolen)
    elif kind == "hard link":
        os.link(stolen, result)
    elif kind == "fifo":
        os.mkfifo(result)
    else:
        cache.rename(engine / "mine")
        cache.symlink_to(roots.directory)
        os.lchown(cache, NOBODY, NOBODY)
    seen = {"result": str(result), "argv": ["vllm", "bench"]}
    with pytest.raises(ProcessError, match="cannot be read") as error:
        benchmark.keep(str(engine), benchmark.Served("a", "m", "http://", "p"), seen, "log")
    assert "words" not in str(error.value.details)
    assert roots.untouched()


def test_a_models_own_code_is_not_run_by_root_when_arguments_are_checked(
    run_module: Module, open_place: Path
) -> None:
    python, asked = open_place / "python", {"a": ["/m", "--trust-remote-code"]}
    answer = json.dumps({"a": {"ok": False, "complaint": "$(id -u) $(id -G) $HOME"}})
    python.write_text(f"#!/bin/sh\ncat > /dev/null\ncat << END\n{answer}\nEND\n")
    python.chmod(0o755)
    args: dict[str, Any] = {
        "cluster_dir": str(open_place),
        "python": str(python),
        "fingerprint": "f",
    }
    args |= {"engines": asked, "deep": True, "user": "nobody"}
    home = pwd.getpwnam("nobody").pw_dir
    assert run_module("vllm_arguments", args, [])["found"] == f"{NOBODY} {NOBODY} {home}"


def test_the_service_neither_reads_nor_writes_the_records_of_its_processes(
    run_module: Module, open_place: Path, as_nobody: Callable[..., Any]
) -> None:
    cluster = open_place / "cluster"
    ours = [str(cluster), str(cluster / "processes"), str(cluster / "logs")]
    args = {"directories": ours, "administered": ours, "owner": "nobody"}
    assert not run_module("cluster_directories", args, []).get("failed")
    record = Path(process.Files(str(cluster), "a").record)
    launcher.write_json(str(record), {"argv": ["vllm"]}, lasting=True)

    def tried() -> list[str]:
        found = []
        for does in (
            lambda: record.read_text(),
            lambda: record.write_text("{}"),
            lambda: record.unlink(),
            lambda: (record.parent / "another").write_text("{}"),
        ):
            try:
                does()
            except PermissionError:
                found.append("refused")
        return found

    assert as_nobody(tried) == ["refused"] * 4


def test_a_link_in_circles_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OSError, match="Not a directory"), safely.walked(str(tmp_path / "a/b")):
        pass


NAMES = ["a", "b", "cache", "config", "key.yaml", "triton", "vllm", "t0", "0", "session_latest"]
NAMES += ["logs", "raylet.err", "supervisord.pid", "torch_compile_cache"]


@pytest.mark.soak
def test_a_service_that_does_all_it_can_gets_nothing_of_root(
    run_module: Module, open_place: Path, roots: Roots, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, run = open_place / "cluster", open_place / "run"
    ours = [cluster / name for name in ("", "engines", "logs", "secrets", "processes")]
    theirs = [cluster / "engines/a", cluster / "engines/b", run]
    deeper = [cluster / f"engines/{one}/{two}" for one in "ab" for two in ("cache", "config")]
    deeper += [run / "t0"]
    every = [str(path) for path in (*ours, *theirs, *deeper)]
    directories = {
        "directories": every,
        "owner": "nobody",
        "administered": [str(path) for path in ours],
        "private": [str(run)],
    }
    archive = roots.directory.with_name("archive")
    cluster_info = {"cluster": "demo", "cluster_dir": str(cluster)}
    compiled = {"cache": f"{cluster}/engines/a/cache", "user": "nobody"}
    works: list[tuple[str, dict[str, Any]]] = [
        ("cluster_directories", directories),
        *(("cluster_directories", {**directories, "directories": [one]}) for one in every),
        *(("cluster_directories", {**directories, "files": {f"{one}/b": "a"}}) for one in every),
        (
            "secret_files",
            {
                "directory": f"{cluster}/engines",
                "owner": "nobody",
                "contents": {"a/key.yaml": "k-1", "b/key.yaml": "k-2"},
                "absent": ["a/config/secret", "b/cache/secret"],
            },
        ),
        (
            "secret_files",
            {
                "directory": f"{cluster}/secrets",
                "owner": "nobody",
                "contents": {"api_key": "k-1"},
                "absent": ["other"],
            },
        ),
        (
            "engine_logs_info",
            {**cluster_info, "engines": ["a"], "ray_dirs": {"a": f"{run}/0", "b": f"{run}/t0"}},
        ),
        ("log_lines_info", cluster_info),
        ("engine_compiled", compiled),
        ("engine_compiled", {**compiled, "state": "packed", "archive": str(archive)}),
        ("engine_compiled", {**compiled, "state": "present", "archive": str(archive)}),
        # What teardown removes of it, without the rest of the cluster.
        *(
            ("cluster_removal", {"cluster_dir": str(open_place / "none"), "run_dir": str(path)})
            for path in (cluster / "engines/a/cache", cluster / "engines/b/config", run / "t0")
        ),
    ]
    run_module("cluster_directories", directories, [])
    before = {path: (path.stat().st_uid, path.stat().st_ino) for path in ours}
    counts: Counter[str] = Counter()
    said = ""
    places = [*theirs, *deeper]
    with ExitStack() as service:
        service.enter_context(acting(everything(places, NAMES, roots)))
        for path in (cluster / "engines/a/cache", cluster / "engines/b/config", run / "t0"):
            service.enter_context(acting(swaps(path.parent, path.name, roots.directory)))
        end = time.monotonic() + SOAK_SECONDS
        while time.monotonic() < end:
            name, args = random.choice(works)  # noqa: S311 no secret
            result = run_module(name, args, [])
            said += str(result)[:4000] if Roots.SECRET in str(result) else ""
            counts[f"{name} {'failed' if result.get('failed') else 'ok'}"] += 1
    with capsys.disabled():
        print(dict(counts))
    assert roots.untouched() and said == ""
    assert {path: (path.stat().st_uid, path.stat().st_ino) for path in ours} == before
    assert Path("/etc/shadow").stat().st_uid == 0
    # Each of them went well as well, at times: an engine that does all this can still be served.
    assert all(counts[f"{name} ok"] for name, _ in works), counts
    args = {"cluster_dir": str(cluster), "run_dir": str(run)}
    assert run_module("cluster_removal", args, [])["changed"]
    assert not cluster.exists() and not run.exists() and roots.untouched()
    with tarfile.open(archive) as packed:
        assert not [one for one in packed.getmembers() if not one.isfile()]
