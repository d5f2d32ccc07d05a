"""The small programs inside the script: addresses of nodes, Ray's count, a first answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.slurm.standalone import TEMPLATES

Serve = Callable[[Callable[[Any], tuple[int, Any]]], Any]


def program(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    text = (TEMPLATES / f"{name}.py.j2").read_text()
    return subprocess.run(
        [sys.executable, "-I", "-u", "-", *arguments],
        input=text,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_node_tells_its_addresses_but_not_its_loopback() -> None:
    done = program("look", SLURMD_NODENAME="gpu1")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        node, interface, address = line.split()
        assert (node, interface != "lo") == ("gpu1", True)
        assert "/" in address and not address.startswith("127.")


ONE = "gpu1 eth0 10.0.0.1/24\ngpu2 eth0 10.0.0.2/24"
TWO = f"{ONE}\ngpu1 ib0 10.9.0.1/16\ngpu2 ib0 10.9.0.2/16"


@pytest.mark.parametrize(
    ("lines", "network", "interface", "printed"),
    [
        (f"welcome to the site\n{ONE}", "", "", "10.0.0.1 eth0\n10.0.0.2 eth0\n"),
        (TWO, "10.9.0.0/16", "", "10.9.0.1 ib0\n10.9.0.2 ib0\n"),
        (TWO, "", "ib0", "10.9.0.1 ib0\n10.9.0.2 ib0\n"),
        (f"{ONE}\ngpu1 docker9 172.17.0.1/16", "", "", "10.0.0.1 eth0\n10.0.0.2 eth0\n"),
    ],
)
def test_ranks_talk_over_the_network_that_all_nodes_share(
    lines: str, network: str, interface: str, printed: str
) -> None:
    done = program("data_plane", lines, network, interface, "gpu1", "gpu2")
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


@pytest.mark.parametrize(
    ("lines", "network", "told"),
    [
        ("gpu1 eth0 10.0.0.1/24", "", "no address on gpu2"),
        ("gpu1 eth0 10.0.0.1/24\ngpu2 eth0 10.0.1.1/24", "", "share 0 networks, not one"),
        (ONE, "10.9.0.0/16", "gpu1 has 0 addresses in 10.9.0.0/16"),
    ],
)
def test_a_network_that_nodes_do_not_share_is_told(lines: str, network: str, told: str) -> None:
    done = program("data_plane", lines, network, "", "gpu1", "gpu2")
    assert told in done.stdout
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_of_several_networks_the_one_counts_by_which_nodes_are_known() -> None:
    here = "localhost eth0 127.0.0.5/8\nlocalhost ib0 10.9.0.1/16"
    assert program("data_plane", here, "", "", "localhost").stdout == "127.0.0.5 eth0\n"


def node(address: str, devices: int, state: str = "ALIVE") -> dict[str, Any]:
    return {"node_ip": address, "state": state, "resources_total": {"GPU": float(devices)}}


def counted(serve: Serve, tmp_path: Path, *answers: list[dict[str, Any]]) -> Any:
    (tmp_path / "token").write_text("secret\n")
    left = list(answers)

    def answer(request: Any) -> tuple[int, Any]:
        if request.key != "Bearer secret":
            return 401, {}
        nodes = left.pop(0) if len(left) > 1 else left[0]
        return 200, {"data": {"result": {"result": nodes}}}

    port = str(serve(answer).port)
    return program("ray_counts", port, str(tmp_path / "token"), "3", "10.0.0.1=4", "10.0.0.2=4")


def test_ray_is_complete_once_every_node_has_all_its_devices(serve: Serve, tmp_path: Path) -> None:
    first, second = node("10.0.0.1", 4), node("10.0.0.2", 4)
    done = counted(serve, tmp_path, [first], [first, node("10.0.0.2", 2)], [first, second])
    assert done.returncode == 0, done.stderr
    assert [line.split("  ")[1] for line in done.stdout.splitlines()] == [
        "Ray counts 4 of 8 devices, missing 10.0.0.2",
        "Ray counts 6 of 8 devices, missing 10.0.0.2",
        "Ray counts 8 of 8 devices on 2 nodes",
    ]


def test_a_node_that_never_joins_is_named(serve: Serve, tmp_path: Path) -> None:
    done = counted(serve, tmp_path, [node("10.0.0.1", 4), node("10.0.0.2", 4, "DEAD")])
    assert done.returncode == 1
    assert "missing 10.0.0.2" in done.stdout
    assert "nothing new for 3 s" in done.stderr


def asked(
    serve: Serve, tmp_path: Path, message: dict[str, Any], expected: str = "", reasons: str = "no"
) -> Any:
    (tmp_path / "key").write_text("secret\n")

    def answer(request: Any) -> tuple[int, Any]:
        if request.path == "/health":
            return 200, {}
        assert request.body["max_tokens"] == (1024 if reasons == "yes" else 32)
        right = request.key == "Bearer secret"
        return (200 if right else 401), {"choices": [{"message": message}]}

    served = serve(answer)
    words = [served.url, "m", str(tmp_path / "key"), "/no/log", "3", "10", "Which city?", expected]
    return program("answers", *words, reasons)


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        ({"content": "Paris."}, "no"),
        ({"content": "Paris.", "reasoning": "The user asks."}, "yes"),
        ({"content": None, "reasoning_content": "It is Paris"}, "yes"),
    ],
)
def test_an_engine_is_ready_once_it_has_answered(
    serve: Serve, tmp_path: Path, message: dict[str, Any], reasons: str
) -> None:
    done = asked(serve, tmp_path, message, "paris", reasons)
    assert done.returncode == 0, done.stderr
    assert "Which city? - " in done.stdout


@pytest.mark.parametrize(
    ("message", "expected", "reasons", "told"),
    [
        ({"content": ""}, "", "no", "m: empty"),
        ({"content": None, "reasoning": "Hm."}, "", "no", "m: empty"),
        ({"content": "Rome"}, "Paris", "no", "no answer with 'Paris': 'Rome'"),
        ({"content": "Paris"}, "", "yes", "no reasoning apart from the answer"),
    ],
)
def test_an_answer_that_proves_nothing_is_none(
    serve: Serve, tmp_path: Path, message: dict[str, Any], expected: str, reasons: str, told: str
) -> None:
    done = asked(serve, tmp_path, message, expected, reasons)
    assert done.returncode == 1
    assert told in done.stderr


def test_an_engine_whose_log_stands_still_is_given_up_with_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text("loading\rshard 3 of 163\r")
    (tmp_path / "key").write_text("secret")
    done = program(
        "answers",
        "http://127.0.0.1:9",
        "m",
        str(tmp_path / "key"),
        str(log),
        "2",
        "1",
        "",
        "",
        "no",
    )
    assert done.returncode == 1
    assert "its last line: shard 3 of 163" in done.stderr
