"""Two models of real vLLM behind the doors of two hosts: limits, changes, losses, looks in."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.lab.commands import podman

from .clone import MINUTE, wait_until
from .doors import CHAT, CLUSTER, DIRECTORY, HOSTS, OUTSIDE, PORT, TINY, Doors, Load, Used
from .two_hosts import SCAN

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.soak]
RATES: dict[str, Any] = {
    "benchmark_engine": TINY,
    "benchmark_ramp_arrivals": "rate",
    "benchmark_ramp_rates": [1, 4],
    "benchmark_ramp_seconds": 15,
    "benchmark_ramp_rounds": 1,
    "benchmark_input_tokens": 32,
    "benchmark_output_tokens": 16,
    "benchmark_slo_ttft_ms": 5000,
    "benchmark_usd_per_hour": 0.5,
}


COMPLETE = "/v1/completions"


def long(tokens: int) -> dict[str, Any]:
    """Return the body of a request for a stream of so many tokens, which says so at its end."""
    options = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    return {"model": CHAT, "prompt": "Once", "max_tokens": tokens, **options}


def tokens(text: str) -> int:
    """Return how many tokens a whole stream had, by its own account."""
    *_, last, done = [one for one in text.splitlines() if one.startswith("data: ")]
    assert done == "data: [DONE]"
    found: int = json.loads(last[6:])["usage"]["completion_tokens"]
    return found


@pytest.fixture(scope="module")
def doors(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    kept = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    made = Doors(Path(kept) if kept else tmp_path_factory.mktemp("doors"))
    try:
        ran = made.start("--skip-tags", "verify,benchmark").result(30 * MINUTE)
        assert ran.status == 0, ran.output
        yield made
    finally:
        if not kept:
            made.lab.down()


def test_both_doors_take_each_model_to_its_engines(doors: Doors) -> None:
    with Used(doors) as chat, Used(doors, TINY) as tiny:
        answers = [doors.ask("free", at=host) for host in HOSTS for _ in range(3)]
        assert [one.status for one in answers] == [200] * 6, answers
        assert doors.ask("free", model=TINY, at="lab2").status == 200
        chat.holds(requests=6, made=48)
        tiny.holds(requests=1, made=8)
    before = doors.counted()
    with Load(doors) as load:
        wait_until(lambda: len(load.requests) >= 12, 300, "12 requests")
    assert load.failed == []
    after = doors.counted()
    assert all(after[one]["requests"] > before[one]["requests"] for one in ("left", "right"))


def test_what_is_refused_has_openai_s_form_and_reaches_no_engine(doors: Doors) -> None:
    with Used(doors) as chat, Used(doors, TINY) as tiny:
        unknown, stranger = doors.ask("free", model="gpt-9"), doors.ask("nobody's key")
        narrow = doors.ask("narrow")
        refused = [(one.status, one.error["code"]) for one in (unknown, stranger, narrow)]
        assert refused == [
            (404, "model_not_found"),
            (401, "invalid_api_key"),
            (403, "model_not_allowed"),
        ]
        for client, models in (("free", {CHAT, TINY}), ("narrow", {TINY})):
            listed = doors.ask(client, path="/v1/models").content["data"]
            assert {one["id"] for one in listed} == models
        assert doors.ask("narrow", model=TINY).status == 200
        chat.holds(requests=0)
        tiny.holds(requests=1)


def test_requests_a_minute_hold_to_the_request_at_both_doors(doors: Doors) -> None:
    with Used(doors) as chat, ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: doors.ask("minute"), range(12)))
        assert sorted(one.status for one in answers) == [200] * 5 + [429] * 7
        for one in answers:
            if one.status == 429:
                assert one.error["code"] == "rate_limit_exceeded"
                assert 1 <= int(one.headers["retry-after"]) <= 60
        chat.holds(requests=5)
    # Of a busy machine more than a minute may have passed.
    wait_until(lambda: doors.ask("minute", at="lab2").status == 429, 60, "429 of the other door")


def test_requests_at_once_hold_to_the_request(doors: Doors) -> None:
    with Used(doors) as chat, ThreadPoolExecutor(2) as pool:
        begun = threading.Barrier(3)

        def hold() -> int:
            with doors.asked(doors.keys["once"], "lab1", COMPLETE, long(400), 900) as answer:
                answer.readline()
                begun.wait(600)
                return tokens(answer.read().decode())

        held = [pool.submit(hold) for _ in range(2)]
        begun.wait(600)
        refused = [doors.ask("once") for _ in range(3)]
        assert [one.done() for one in held] == [False, False], "the streams have ended"
        assert [one.status for one in refused] == [429] * 3
        assert {one.headers["retry-after"] for one in refused} == {"1"}
        assert [one.result(900) for one in held] == [400, 400]
        assert doors.ask("once").status == 200
        chat.holds(requests=3, made=808)


def test_tokens_a_day_hold_to_the_token(doors: Doors) -> None:
    most, used, prompt = 150, list[int](), 0
    with Used(doors) as chat:
        for number in range(40):
            made = 9 + number
            options: dict[str, Any] = {"stream": True} if number % 3 else {}
            if number % 3 == 2:
                options["stream_options"] = {"include_usage": True}
            answer = doors.ask("day", max_tokens=made, **options)
            if answer.status == 429:
                break
            assert answer.whole, answer
            last = answer.events[-1] if options else answer.content
            if number % 3 == 1:
                # It did not ask for them.
                assert not last.get("usage"), last
            else:
                prompt = last["usage"]["prompt_tokens"]
                assert last["usage"]["total_tokens"] == prompt + made
            used.append(prompt + made)
        assert sum(used[:-1]) < most <= sum(used), used
        assert answer.error["code"] == "rate_limit_exceeded"
        assert int(answer.headers["retry-after"]) <= 86400
        read = prompt * len(used)
        chat.holds(requests=len(used), read=read, made=sum(used) - read)
    assert journal(doors, "lab1", "day") == (len(used), sum(used))
    wait_until(lambda: doors.ask("day", at="lab2").status == 429, 60, "429 of the other door")


def journal(doors: Doors, host: str, client: str) -> tuple[int, int]:
    """Return the requests and tokens that a door's own journal of this day has of a client."""
    lines = doors.lab.run(host, ["sh", "-c", f"cat {DIRECTORY}/door/usage/*.journal"]).stdout
    words = [one.split() for one in lines.splitlines()]
    own = [list(map(int, one[3:])) for one in words if len(one) == 6 and one[2] == client]
    return sum(one[0] for one in own), sum(one[1] + one[2] for one in own)


def test_a_scan_of_the_tls_finds_strong_ciphers_alone(doors: Doors) -> None:
    place = (doors.door("lab1"), PORT)

    def agreed(version: ssl.TLSVersion, ciphers: str) -> str:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = context.maximum_version = version
        context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        context.set_alpn_protocols(["h2", "http/1.1"])
        try:
            with (
                socket.create_connection(place, 60) as plain,
                context.wrap_socket(plain) as secure,
            ):
                assert secure.selected_alpn_protocol() == "h2"
                assert secure.compression() is None
                cipher = secure.cipher()
                return cipher[0] if cipher else ""
        except ssl.SSLError:
            return ""

    listed = ["openssl", "ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]
    known = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split(":")
    offered = [one.strip() for one in known if not one.startswith("TLS_")]
    assert len(offered) > 50
    taken = {one for one in offered if agreed(ssl.TLSVersion.TLSv1_2, one)}
    print("TLS 1.2:", *sorted(taken))
    assert taken
    assert all(one.startswith("ECDHE-") and ("GCM" in one or "CHACHA" in one) for one in taken)
    assert agreed(ssl.TLSVersion.TLSv1_3, "ALL").startswith("TLS_")
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        assert agreed(version, "ALL") == ""


def test_from_outside_there_are_the_door_and_ssh_and_nothing_else(doors: Doors) -> None:
    outside = [doors.door(host) for host in HOSTS]
    found = {tuple(one) for one in doors.python(OUTSIDE, SCAN, *outside)}
    assert found == {(address, port) for address in outside for port in (22, PORT)}
    # What the scan would have found: the engines listen, on the other network.
    for url in doors.engine_urls():
        address, _, port = url.rpartition("/")[2].partition(":")
        assert address not in outside
        knock = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)"
        doors.lab.run("lab1", ["python3", "-c", knock, address, port])


def test_a_key_is_revoked_while_its_stream_is_under_way(doors: Doors) -> None:
    doors.key("revoke", "once")
    playing = doors.start(playbook="playbooks/route.yml")
    playing.wait_for(
        lambda one: one["event"] == "stage_start" and one["stage"] == "route", "route", 10 * MINUTE
    )
    key = doors.keys["once"]
    with (
        ThreadPoolExecutor(1) as pool,
        doors.asked(key, "lab1", COMPLETE, long(1500), 900) as answer,
    ):
        assert answer.status == 200
        first = answer.readline()
        rest = pool.submit(answer.read)
        wait_until(
            lambda: all(doors.ask(key, at=host).status == 401 for host in HOSTS),
            15 * MINUTE,
            "401",
            0.5,
        )
        assert not rest.done(), "the stream has ended before its key was revoked"
        assert tokens((first + rest.result(900)).decode()) == 1500
    ran = playing.result()
    assert ran.status == 0, ran.output
    assert doors.ask("free").status == 200


def healthy(doors: Doors) -> bool:
    """Tell whether the engine `right` answers on its own address."""
    ask = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + '/health', timeout=30)"
    words = ["python3", "-c", ask, doors.engine_urls()[1]]
    return doors.lab.run("lab2", words, check=False).returncode == 0


def test_a_replica_is_restarted_under_load_and_no_request_fails(doors: Doors) -> None:
    unit = f"vllm-{CLUSTER}-right-serve"
    pid = ["systemctl", "show", "--property", "MainPID", "--value", unit]
    before = doors.lab.run("lab2", pid).stdout
    with Load(doors) as load:
        wait_until(lambda: len(load.requests) >= 8, 300, "requests")
        doors.set_state("right", "drain")
        for host in HOSTS:
            ended = lambda host=host: doors.server(host, "right")["scur"] == "0"  # noqa: E731
            wait_until(ended, 300, "the end of its requests", 0.5)
        doors.lab.run("lab2", ["systemctl", "restart", unit])
        wait_until(lambda: healthy(doors), 15 * MINUTE, "its answer to /health", 1)
        for host in HOSTS:
            up = lambda host=host: doors.server(host, "right")["check_status"] == "L7OK"  # noqa: E731
            wait_until(up, 300, "its check by the door", 0.5)
        doors.set_state("right", "ready")
        served = doors.counted()["right"]["requests"]
        wait_until(lambda: doors.counted()["right"]["requests"] > served, 300, "its requests", 1)
    assert load.failed == []
    assert [one for one in load.requests if one.lost] == []
    assert doors.lab.run("lab2", pid).stdout != before


def test_an_open_loop_from_the_load_host_goes_through_the_door(
    doors: Doors, tmp_path: Path
) -> None:
    key = tmp_path / "loader"
    key.write_text(f"{doors.keys['free']}\n")
    key.chmod(0o600)
    before = journal(doors, "lab1", "free")[0]
    with Used(doors, TINY) as tiny:
        ran = doors.run(
            *("-e", json.dumps({**RATES, "benchmark_load_key_file": str(key)})),
            playbook="playbooks/ramp.yml",
        )
        assert ran.status == 0, ran.output
        found = json.loads((ran.directory / f"ramp-{TINY}.json").read_text())
        print(ran.directory / f"ramp-{TINY}.html", json.dumps(found["bottleneck"]))
        assert [(one["step"], one["failed"]) for one in found["steps"]] == [(1, 0), (4, 0)]
        generator = found["generator"]
        assert (generator["host"], generator["shared"]) == (OUTSIDE, False)
        assert f"load from {OUTSIDE} to https://" in ran.evidence("ramp")[0]["summary"]
        sent = journal(doors, "lab1", "free")[0] - before
        tiny.holds(requests=sent)
    assert sent >= sum(RATES["benchmark_ramp_rates"]) * RATES["benchmark_ramp_seconds"]
    assert "ran on lab3, a host of its own" in (ran.directory / f"ramp-{TINY}.html").read_text()


def test_a_door_that_is_killed_costs_what_it_had_in_its_hands(doors: Doors) -> None:
    with Load(doors) as load:
        wait_until(lambda: len(load.requests) >= 8, 300, "requests")
        moment = time.time()
        doors.lab.run("lab1", ["systemctl", "kill", "--signal=KILL", f"vllm-{CLUSTER}-door"])
        wait_until(lambda: len(load.after(moment)) >= 20, 300, "requests after it")
    assert load.failed == []
    lost = [one for one in load.requests if one.lost]
    assert 1 <= len(lost) <= 2 * len(load.threads), lost
    wait_until(lambda: doors.ask("free").status == 200, 120, "the door again")
    # Its counts outlive it.
    assert doors.ask("day").status == 429


def test_a_host_that_is_gone_takes_its_door_and_its_engine_with_it(doors: Doors) -> None:
    (gone,) = [one for one in doors.lab.record.hosts if one.name == "lab1"]
    # Nothing tells who waits for an answer of a host that lost its power.
    with Load(doors, patience=60) as load:
        wait_until(lambda: len(load.requests) >= 8, 300, "requests")
        podman("kill", gone.container)
        moment = time.time()
        wait_until(lambda: len(load.after(moment)) >= 20, 600, "requests after it")
    after = load.after(moment)
    print(len(after), "requests sent after it,", len([one for one in after if one.wrong]), "failed")
    print(*load.failed, sep="\n")
    assert [one for one in after if one.wrong] == []
    assert {one.at for one in after} == {"lab2"}
    # What the second door had given to the engine of that host is lost with it.
    assert len(load.failed) <= len(load.threads)
    assert doors.server("lab2", "left")["status"].startswith("DOWN")
    assert doors.ask("day", at="lab2").status == 429
    assert doors.ask("narrow", at="lab2", model=TINY).status == 200
