"""What is made of results that vllm 0.32.0 wrote, with a server that answers, refuses, is gone.

`unavailable` is `wrong-key` with the reason that a router without ranks gives.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.engine import benchmark, refused_request
from vllm_ansible.node.process.process import ProcessError

DATA = Path(__file__).with_name("data")
ENGINE = benchmark.Served("chat", "m", "http://127.0.0.1:18999", "plan1")
SETTINGS = {"requests": 8, "concurrency": 2, "input_tokens": 64, "output_tokens": 32}


def keep(
    tmp_path: Path, recorded: str, engine: benchmark.Served = ENGINE, **asked: str
) -> dict[str, Any]:
    result = Path(benchmark.result_path(str(tmp_path), "chat"))
    result.parent.mkdir(parents=True)
    shutil.copy(DATA / f"{recorded}.json", result)
    (tmp_path / "evidence").mkdir()
    seen = {
        "argv": ["vllm", "bench", "serve"],
        "result": str(result),
        "seed": 1,
        "logs": {},
        "fingerprint": {"plan": "plan1", "instance": "i1", "settings": SETTINGS, **asked},
    }
    return benchmark.keep(str(tmp_path), engine, seen, "task.log")


def test_figures_are_kept_with_what_they_hold_for(tmp_path: Path) -> None:
    figures = keep(tmp_path, "answered")
    measured_at = figures.pop("measured_at")
    assert measured_at.endswith(" UTC")
    assert figures == {
        "name": "chat",
        "requests": 8,
        "failed": 0,
        "concurrency": 2,
        "input_tokens": 64,
        "output_tokens": 32,
        "ttft_ms_median": 7.7,
        "ttft_ms_p99": 8.8,
        "inter_token_latency_ms_median": 0.0,
        "output_tokens_per_second": 7602.8,
        "duration_seconds": 0.03,
        "compiled": "",
    }
    kept = json.loads(Path(benchmark.kept_path(str(tmp_path), "chat")).read_text())
    assert kept["fingerprint"]["instance"] == "i1"
    assert kept["command"] == "vllm bench serve"


# As the client of vllm 0.32.0 wrote it, measuring over a link that was full, on 26 November 2026.
SPLIT = "Traceback\njson.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
SPOILT = (
    "Traceback\njson.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 9 (char 8)\n"
)


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ([SPLIT], {"failed": 1, "unread": 1}),
        ([SPLIT, SPLIT], {"failed": 2, "unread": 2}),
        ([SPLIT] * 3, None),
        ([SPOILT], None),
        ([SPLIT, SPOILT], None),
    ],
)
def test_a_few_answers_that_the_client_could_not_read_end_no_measurement(
    errors: list[str], found: dict[str, int] | None
) -> None:
    recorded = json.loads((DATA / "answered.json").read_text())
    lost = len(errors)
    raw = {
        **recorded,
        "completed": 40 - lost,
        "errors": [*errors, *[""] * (40 - lost)],
        "output_lens": [*[0] * lost, *[32] * (40 - lost)],
    }
    settings = benchmark.Settings(40, 2, 64, 32)
    if found is None:
        with pytest.raises(ProcessError, match=f"answered {40 - lost} of 40") as raised:
            benchmark.judge(raw, ENGINE, settings, "/c", "vllm bench serve")
        assert ("not the engine" in raised.value.details["cause"]) == (errors[0] == SPLIT)
        return
    benchmark.judge(raw, ENGINE, settings, "/c", "vllm bench serve")
    figures = benchmark.figures(raw, ENGINE, settings)
    assert {name: figures[name] for name in found} == found


@pytest.mark.parametrize(
    ("recorded", "found", "cause"),
    [
        ("wrong-key", "8 failed, the first with: Unauthorized", "another key"),
        ("server-down", "ClientConnectorError: Cannot connect to host", "stopped listening"),
    ],
)
def test_a_refused_measurement_says_what_came_back(
    tmp_path: Path, recorded: str, found: str, cause: str
) -> None:
    with pytest.raises(ProcessError, match=r"^chat answered 0 of 8 requests\.$") as raised:
        keep(tmp_path, recorded)
    assert found in raised.value.details["found"]
    assert "Traceback" not in raised.value.details["found"]
    assert cause in raised.value.details["cause"]
    assert not Path(benchmark.kept_path(str(tmp_path), "chat")).exists()


# Of HAProxy 2.6, cut at their ends.
SLOW = (
    "Server ranks/rank-2 is DOWN, reason: Layer7 wrong status, code: 0, info: "
    '"via agent : down (no token for 2.8 s)", check duration: 0ms. 2 active\n'
)
REFUSED = (
    "Server ranks/rank-1 is DOWN, reason: Layer4 connection problem, info: "
    '"Connection refused", check duration: 0ms. 1 active\n'
)
BACK = (
    "Server ranks/rank-1 is UP, reason: Layer7 check passed, code: 0, info: "
    '"via agent : up", check duration: 0ms. 2 active\n'
)
SLOW_ALONE = "a rank; it has ejected rank-2 (no token for 2.8 s)"


# As the client of vllm 0.32.0 wrote them with 0.3 % of a core, on 27 November 2026: its
# server had run all the time, and none came where it kept connections for longer than 5 s.
UNUSED = (
    "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
    "aiohttp.client_exceptions.ClientOSError: [Errno None] Can not write request body for http://h",
)


@pytest.mark.parametrize("error", UNUSED)
def test_a_connection_that_was_closed_unused_is_not_laid_to_the_server_alone(error: str) -> None:
    cause, fix = refused_request.explain(error, "chat-serve", "/c")
    assert cause.startswith("chat-serve ended, or") and "5 s" in cause
    assert "chat-serve.log" in fix and "another host" in fix


@pytest.mark.parametrize(
    ("before", "logged", "cause"),
    [
        ("", SLOW, SLOW_ALONE),
        (REFUSED, SLOW, SLOW_ALONE),
        (
            "",
            REFUSED + SLOW + BACK,
            "rank-1 (Connection refused; up again since), rank-2 (no token for 2.8 s)",
        ),
        ("", BACK, "refused or broke off"),
        (REFUSED, "", "refused or broke off"),
    ],
)
def test_what_a_router_refused_is_told_with_the_ranks_it_ejected_since_its_start(
    tmp_path: Path, before: str, logged: str, cause: str
) -> None:
    for name in ("logs", "processes"):
        (tmp_path / name).mkdir()
    log = tmp_path / "logs/chat-router.log"
    log.write_text(before + logged)
    record = {"log_offset": len(before)}
    (tmp_path / "processes/chat-router.json").write_text(json.dumps(record))
    router = "http://10.0.0.1:9"
    engine = replace(ENGINE, router="chat-router", router_url=router)
    with pytest.raises(ProcessError, match="answered 0 of 8") as raised:
        keep(tmp_path, "unavailable", engine, router=router)
    details = raised.value.details
    assert details["where"] == router
    assert details["cause"].endswith(cause), details
    assert str(log) in details["fix"]
    assert ("router_answer_seconds" in details["fix"]) == ("ejected" in cause or "rank-" in cause)


def test_what_a_router_answers_for_is_measured_there_and_again_when_it_comes(
    tmp_path: Path,
) -> None:
    (tmp_path / "processes").mkdir()
    record = {"argv": ["/env/bin/vllm", "serve", "/models/m"], "environment": {}}
    (tmp_path / "processes/chat-serve.json").write_text(json.dumps(record))
    engine = replace(ENGINE, router="chat-router", router_url="http://10.0.0.1:9")
    found = {"running": True, "instance": "i"}
    seen = [
        benchmark.look(str(tmp_path), engine, found, benchmark.Settings(**SETTINGS), router)
        for router in (None, {"running": False}, {"running": True})
    ]
    urls = [one["argv"][one["argv"].index("--base-url") + 1] for one in seen]
    assert urls == [ENGINE.url, ENGINE.url, "http://10.0.0.1:9"]
    assert seen[0]["fingerprint"] == seen[1]["fingerprint"] != seen[2]["fingerprint"]


def test_another_seed_is_used_while_the_same_server_runs(tmp_path: Path) -> None:
    keep(tmp_path, "answered")
    settings = benchmark.Settings(**SETTINGS)
    processes = tmp_path / "processes"
    processes.mkdir()
    record = {"argv": ["/env/bin/vllm", "serve", "/models/m"], "environment": {}, "user": "svc"}
    (processes / "chat-serve.json").write_text(json.dumps(record))
    for instance, seed in (("i1", 2), ("i2", 0)):
        found = {"running": True, "instance": instance}
        seen = benchmark.look(str(tmp_path), ENGINE, found, settings)
        assert (seen["fresh"], seen["seed"]) == (instance == "i1", seed)
        assert seen["argv"][seen["argv"].index("--seed") + 1] == str(seed)
        assert (seen["user"], seen["cleanup"]) == ("svc", [])


def test_an_engine_in_an_image_is_measured_by_a_container_beside_it(tmp_path: Path) -> None:
    (tmp_path / "processes").mkdir()
    tool = ["/usr/bin/podman", "run", "--rm", "--name=vllm-c-chat-serve", "--env=HF_HOME"]
    record = {
        "argv": [*tool, "--entrypoint=vllm", "0a1b", "serve", "/models/m", "--port", "1"],
        "environment": {"HF_HOME": "/cache"},
        "user": None,
        "cleanup": ["/usr/bin/podman", "rm", "--force", "vllm-c-chat-serve"],
    }
    (tmp_path / "processes/chat-serve.json").write_text(json.dumps(record))
    found = {"running": True, "instance": "i"}
    seen = benchmark.look(str(tmp_path), ENGINE, found, benchmark.Settings(**SETTINGS))
    argv = seen["argv"]
    begin = ["/usr/bin/podman", "run", "--rm", "--name=vllm-c-chat-serve-benchmark"]
    assert argv[: argv.index("bench")] == [
        *(*begin, "--env=HF_HOME", "--entrypoint=vllm", "--env=OPENAI_API_KEY"),
        *("--env=NO_PROXY", "--env=no_proxy", "0a1b"),
    ]
    assert argv[argv.index("--tokenizer") + 1] == "/models/m"
    assert seen["cleanup"] == [*record["cleanup"][:-1], "vllm-c-chat-serve-benchmark"]
    # Who may start containers does, and the engine's own user writes where it may in them.
    assert seen["user"] == ""
    assert seen["result"].startswith(f"{tmp_path}/engines/chat/cache/")
