"""The wait for an engine, against stand-ins that log and answer as vLLM does; a real play."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import launcher

KEY = "k-123456"
LOADING = "INFO Starting to load model /m\nsafetensors checkpoint shards: 2/8 [00:01, 1.0it/s]\r"
LATE = "It is late."
NO_PROCESS = {"pid": 1 << 22, "start_time": 1}


IDLE = "INFO [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds\n"


class Engine:
    """An HTTP server that is healthy from the second look on, and answers with the key.

    One that never gets healthy goes on logging that it waits, as vLLM does.
    """

    def __init__(self, cluster: Path, answer: str = "", looks: int = 1) -> None:
        self.log, self.answer = cluster / "logs/a-serve.log", answer
        self.healthy, self.looks, self.unready = bool(answer), 0, looks

    def __call__(self, request: Any) -> tuple[int, Any]:
        if request.path == "/health":
            self.looks += 1
            if not self.healthy and self.looks < 10:
                with self.log.open("a") as log:
                    log.write(IDLE)
            return (200 if self.healthy and self.looks > self.unready else 503), ""
        if request.key != f"Bearer {KEY}":
            return 401, {"error": "Unauthorized"}
        if self.answer == LATE:
            time.sleep(5)
        logprobs = {"content": [{"token": self.answer, "logprob": -0.1}]}
        message = {"role": "assistant", "content": self.answer}
        choice = {"message": message, "finish_reason": "stop", "logprobs": logprobs}
        return 200, {"choices": [choice], "usage": {"completion_tokens": 1}}


def record(cluster: Path, *, running: bool) -> None:
    """Write what supervisord's launcher leaves of a process; this one stands for it."""
    process = launcher.identity(os.getpid()) if running else NO_PROCESS
    log = cluster / "logs/a-serve.log"
    files = {
        cluster / "processes/a-serve.json": {
            **{"cluster": "demo", "engine": "a", "argv": ["vllm"], "digest": "d"},
            **{"supervisor": "supervisord", "log": str(log), "log_offset": 8},
        },
        cluster / "processes/a-serve.state.json": {
            **{"boot_id": launcher.boot_id(), "launcher": process, "process": process},
            **{"instance": "i", "started_at": time.time(), "exit_status": None if running else 137},
        },
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    log.parent.mkdir()
    log.write_text(f"earlier\n{LOADING}")


def test_a_wait_ends_with_an_answer_a_death_or_silence(
    play: Any, serve: Any, tmp_path: Path
) -> None:
    (tmp_path / "api_key").write_text(KEY)
    (tmp_path / "run").mkdir()
    engines = {
        "ready": Engine(tmp_path / "ready", "It is Paris."),
        "wrong": Engine(tmp_path / "wrong", "It is Rome."),
        "silent": Engine(tmp_path / "silent"),
        "died": Engine(tmp_path / "died"),
        "alone": Engine(tmp_path / "alone"),
        "late": Engine(tmp_path / "late", LATE),
    }
    for name in engines:
        record(tmp_path / name, running=name != "died")
    # A data rank waits for the others, and says nothing of one that has ended.
    for path in (tmp_path / "died/processes").iterdir():
        name = path.name.replace("a-serve", "a-serve-1")
        (tmp_path / "alone/processes" / name).write_text(path.read_text())
    wait = {
        "engine": "a",
        "process": "a-serve",
        "look": {"cluster": "demo", "cluster_dir": f"{tmp_path}/{{{{ inventory_hostname }}}}"},
        "url": "{{ url }}",
        "completion": {
            "model": "m",
            "api_key_file": str(tmp_path / "api_key"),
            "question": "Which city?",
            "expect": "Paris",
            "timeout_seconds": "{{ 1 if inventory_hostname == 'late' else 300 }}",
        },
        "silence_seconds": 0.5,
    }
    played = play(
        [
            {"name": "wait", "vllm_ready": wait},
            {
                "name": "check mode",
                "vllm_ready": wait,
                "check_mode": True,
                "when": "inventory_hostname == 'silent'",
            },
            {
                "name": "serving",
                "vllm_ready": {**wait, "serving": True},
                "when": "inventory_hostname in ('ready', 'died')",
            },
        ],
        {name: {"url": serve(engine).url} for name, engine in engines.items()},
        {"VLLM_ANSIBLE_RUN_DIR": str(tmp_path / "run")},
    )
    results = played.tasks["wait"]
    assert not any(one["changed"] or one.get("failed") for one in results.values())

    ready = results["ready"]
    assert ready["ready"] and ready["answer"] == "It is Paris."
    assert ready["endpoint"].endswith("/v1") and ready["question"] == "Which city?"
    # Twice for the wait; an engine that serves is asked without a look at its health.
    assert engines["ready"].looks == 2
    serving = played.tasks["serving"]
    assert serving["ready"]["answer"] == "It is Paris."

    wrong = results["wrong"]
    assert not wrong["ready"] and "does not contain 'Paris': 'It is Rome.'" in wrong["found"]
    assert wrong["expected"].startswith("a correct completion from a at http://127.0.0.1:")

    died = results["died"]
    assert not died["ready"] and not died.get("silent")
    killed = "a-serve was killed by signal 9 (SIGKILL) while loading shards"
    assert died["found"].startswith(killed)
    assert "last line: safetensors checkpoint shards: 2/8" in died["found"]
    assert died["where"] == "a-serve.log" and died["fix"]
    # One that only seemed to serve is looked at as any other.
    assert serving["died"]["found"].startswith(killed)

    alone = results["alone"]
    assert not alone["ready"] and not alone.get("silent")
    other = "a-serve-1 was killed by signal 9 (SIGKILL) while a-serve was loading shards"
    assert alone["found"].startswith(other)

    silent = results["silent"]
    assert not silent["ready"] and silent["silent"]
    assert "while loading shards" in silent["found"]
    assert silent["found"].endswith(f"last line: {IDLE.strip()}")
    # What it said again and again was no news, so the wait has ended all the same.
    assert 2 <= engines["silent"].looks < 10

    late = results["late"]
    assert not late["ready"] and late["silent"] and "wrong" not in late
    assert "wrong" in wrong and "silent" not in wrong

    unwaited = played.tasks["check mode"]["silent"]
    assert unwaited["ready"] and not unwaited["waited"] and "answer" not in unwaited

    assert KEY not in str(played)
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    shown = {(one["text"], one["done"], one["total"]) for one in events}
    assert ("a: loading shards", 2, 8) in shown and ("a: first answer", None, None) in shown


@pytest.mark.parametrize("news", ["phase", "health", "end", ""])
def test_one_look_lasts_until_there_is_news(
    run_module: Any, serve: Any, tmp_path: Path, news: str
) -> None:
    """A module that is started anew takes more of a loading host than all that it looks at."""
    record(tmp_path / "c", running=True)
    record(tmp_path / "ended", running=False)
    looks: list[str] = []

    def health(request: Any) -> tuple[int, str]:
        looks.append(request.path)
        if len(looks) == 3 and news == "phase":
            with (tmp_path / "c/logs/a-serve.log").open("a") as log:
                log.write("INFO Loading weights took 3.2 seconds\n")
        if len(looks) == 3 and news == "end":
            state = "processes/a-serve.state.json"
            (tmp_path / "ended" / state).rename(tmp_path / "c" / state)
        return (200 if len(looks) == 3 and news == "health" else 503), ""

    args = {
        "cluster": "demo",
        "cluster_dir": str(tmp_path / "c"),
        "process": "a-serve",
        "phase": "loading shards",
        "health_url": f"{serve(health).url}/health",
        "wait_seconds": 600 if news else 0,
    }
    look = run_module("engine_log_info", args, [])
    found = look["phase"]["name"], look["healthy"], look["running"], len(looks)
    assert (
        found
        == {
            "phase": ("profiling", False, True, 4),
            "health": ("loading shards", True, True, 3),
            "end": ("loading shards", False, False, 4),
            "": ("loading shards", False, True, 1),
        }[news]
    )


COMPILING = "flashinfer.jit: Building JIT module sampling; this can take several minutes\n"


@pytest.fixture
def compiler(tmp_path: Path) -> Iterator[Any]:
    """Start what stands for a compiler, below the process of a cluster's engine."""
    started: list[subprocess.Popen[bytes]] = []

    def start(cluster: Path, command: str, script: str) -> int:
        program = cluster / command
        program.symlink_to(shutil.which("sh") or "/bin/sh")
        mark = {launcher.MARKER: str(cluster / "processes/a-serve.json")}
        started.append(subprocess.Popen([program, "-c", script], env={**os.environ, **mark}))
        return started[-1].pid

    yield start
    for one in started:
        one.kill()
        one.wait()


def test_compilers_at_work_are_a_sign_of_life_and_compilers_that_hang_are_not(
    play: Any, serve: Any, compiler: Any, tmp_path: Path
) -> None:
    (tmp_path / "api_key").write_text(KEY)
    (tmp_path / "run").mkdir()
    engines = {
        "compiles": Engine(tmp_path / "compiles", "It is Paris.", looks=4),
        "hangs": Engine(tmp_path / "hangs"),
        "endless": Engine(tmp_path / "endless"),
    }
    for name in engines:
        record(tmp_path / name, running=True)
        with (tmp_path / name / "logs/a-serve.log").open("a") as log:
            log.write(COMPILING)
    busy = "while :; do :; done"
    compiler(tmp_path / "compiles", "cicc", busy)
    hung = compiler(tmp_path / "hangs", "nvcc", "kill -STOP $$")
    endless = compiler(tmp_path / "endless", "ptxas", busy)
    played = play(
        [
            {
                "name": "wait",
                "vllm_ready": {
                    "engine": "a",
                    "process": "a-serve",
                    "look": {
                        "cluster": "demo",
                        "cluster_dir": f"{tmp_path}/{{{{ inventory_hostname }}}}",
                    },
                    "url": "{{ url }}",
                    "completion": {
                        "model": "m",
                        "api_key_file": str(tmp_path / "api_key"),
                        "question": "Which city?",
                        "expect": "Paris",
                    },
                    "silence_seconds": 0.5,
                    "compile_seconds": "{{ allowed }}",
                },
            }
        ],
        {
            name: {"url": serve(engine).url, "allowed": 4 if name == "endless" else 60}
            for name, engine in engines.items()
        },
        {"VLLM_ANSIBLE_RUN_DIR": str(tmp_path / "run")},
    )
    results = played.tasks["wait"]

    # Four looks without a line, at a limit of half a second. How far they are apart is the
    # machine's business: what counts is that the limit was passed and the engine kept.
    compiles = results["compiles"]
    assert compiles["ready"] and compiles["answer"] == "It is Paris.", compiles
    assert 0.5 < compiles["start"]["compiling kernels"] < 120
    assert list(compiles["start"]) == ["compiling kernels", "first answer"]

    hangs = results["hangs"]
    assert not hangs["ready"] and hangs["silent"]
    assert "while compiling kernels; no processor time taken by nvcc" in hangs["found"]
    assert f"nvcc (process {hung})" in hangs["found"]

    wordless = results["endless"]
    assert not wordless["ready"] and wordless["silent"]
    limit = "no line for more than 4 s while compiling kernels; still at work: ptxas"
    assert f"{limit} (process {endless})" in wordless["found"]

    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert any("a: compiling kernels (1 compiler, " in one["text"] for one in events)


LOADS = """
import mmap, sys, time
shard, store = open(sys.argv[1], "rb"), open("/dev/zero", "rb", buffering=0)
view = mmap.mmap(shard.fileno(), 0, access=mmap.ACCESS_READ)
while True:
    for _ in range(int(sys.argv[2])):
        store.read(1 << 20)
    time.sleep(0.5)
"""


def test_a_load_that_reads_is_not_given_up_however_long_it_says_nothing(
    play: Any, serve: Any, tmp_path: Path
) -> None:
    (tmp_path / "api_key").write_text(KEY)
    engines = {}
    with ExitStack() as stack:
        for name, mib in (("slow", 40), ("hangs", 0), ("elsewhere", 0)):
            cluster = tmp_path / name
            (cluster / "model").mkdir(parents=True)
            shard = cluster / "model/a.safetensors"
            shard.write_bytes(b"x" * 4096)
            command = [sys.executable, "-c", LOADS, str(shard), str(mib)]
            mark = {launcher.MARKER: str(cluster / "processes/a-serve.json")}
            stack.callback(subprocess.Popen(command, env={**os.environ, **mark}).kill)
            record(cluster, running=True)
            # A look is half a second at least, so that the limit of silence is long over.
            engines[name] = Healthy(at=40 if name != "hangs" else 1 << 30)
        wait = {
            "engine": "a",
            "process": "a-serve",
            "look": {"cluster": "demo", "cluster_dir": f"{tmp_path}/{{{{ inventory_hostname }}}}"},
            "url": "{{ url }}",
            "completion": {"model": "m", "api_key_file": str(tmp_path / "api_key")},
            "silence_seconds": 12,
            "model_path": "{{ model_path }}",
            "elsewhere_seconds": "{{ elsewhere | default(0) }}",
        }
        hosts = {
            name: {
                "url": serve(engine).url,
                "model_path": f"{tmp_path}/{name}/model",
                **({"elsewhere": 600} if name == "elsewhere" else {}),
            }
            for name, engine in engines.items()
        }
        results = play([{"name": "wait", "vllm_ready": wait}], hosts).tasks["wait"]
    assert {name for name, one in results.items() if one["ready"]} == {"slow", "elsewhere"}, results
    assert results["hangs"]["silent"]
    assert "nothing new for" in results["hangs"]["found"]


class Healthy:
    """A server that is healthy, and answers, from some look on."""

    def __init__(self, at: int) -> None:
        self.at, self.looks = at, 0

    def __call__(self, request: Any) -> tuple[int, Any]:
        if request.path == "/health":
            self.looks += 1
            return (200 if self.looks > self.at else 503), ""
        if request.key != f"Bearer {KEY}":
            return 401, {"error": "Unauthorized"}
        logprobs = {"content": [{"token": "Paris", "logprob": -0.1}]}
        message = {"role": "assistant", "content": "It is Paris, of course."}
        choice = {"message": message, "finish_reason": "stop", "logprobs": logprobs}
        return 200, {"choices": [choice], "usage": {"completion_tokens": 1}}
