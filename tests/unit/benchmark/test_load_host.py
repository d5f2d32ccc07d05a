"""A load generator on a host of its own: what it is given, what is judged, what is sampled."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.unit.benchmark import ramps
from vllm_ansible.benchmark import ramp as report
from vllm_ansible.benchmark import served
from vllm_ansible.benchmark.ramp_page import page
from vllm_ansible.node.engine import load_samples, ramp
from vllm_ansible.node.engine.benchmark import Client, Served, Settings, how, look
from vllm_ansible.plan.pairs import PAIRS
from vllm_ansible.plan.roles import DECODE, PREFILL

ROOT = Path(__file__).parents[3]
LOAD = {"name": "l1", "cluster_dir": "/c", "program": "/c/env/bin/vllm", "certificate": "/c/d.crt"}
ENGINE = Served(name="chat", served_name="m", url="http://10.0.0.1:8000", digest="one")
RECORD = {
    "engine": "chat",
    "argv": [
        *("podman", "run", "--name", "x", "/env/bin/vllm", "serve", "/models/m"),
        *("--tokenizer-mode", "hf", "--trust-remote-code"),
    ],
    "environment": {"CUDA_VISIBLE_DEVICES": "0"},
    "user": "vllm",
    "cleanup": ["podman", "rm", "x"],
}


def plan(*engines: tuple[str, str]) -> dict[str, Any]:
    return {"engines": [{"name": name, "served_name": model} for name, model in engines]}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "processes").mkdir()
    (tmp_path / "processes/chat-serve.json").write_text(json.dumps(RECORD))
    return tmp_path


def client(url: str = "") -> Client:
    return Client(**served.client(LOAD, url))


def test_it_runs_the_program_of_its_host_without_what_the_server_was_started_with(
    cluster: Path,
) -> None:
    asked = client("https://10.0.0.1:9443").asked(ENGINE)
    found = how(
        str(cluster), asked, Settings(8, 2, 64, 32), 0, "benchmark", client=client(asked.url)
    )
    words = " ".join(found["argv"])
    # In no container, and with the key and the certificate by file alone.
    assert words.startswith("/c/env/bin/vllm bench serve --base-url https://10.0.0.1:9443 ")
    assert "--tokenizer /c/load/tokenizer-chat --tokenizer-mode hf --trust-remote-code" in words
    assert found["environment"]["SSL_CERT_FILE"] == "/c/d.crt"
    assert "CUDA_VISIBLE_DEVICES" not in found["environment"]
    assert found["environment"]["NO_PROXY"] == "10.0.0.1"
    assert (found["user"], found["cleanup"]) == ("", [])
    assert found["written"] == "/c/load/written/benchmark.json"
    # Root brings it to where the engine may not write.
    assert found["result"] == str(cluster / "evidence/benchmark-chat.result")
    assert found["tokenizer"] == "/models/m"


def test_figures_of_another_client_do_not_hold(cluster: Path) -> None:
    runs = {"running": True, "instance": "i1"}
    settings = Settings(8, 2, 64, 32)
    own = look(str(cluster), ENGINE, runs, settings)
    elsewhere = look(str(cluster), ENGINE, runs, settings, client=client())
    through = look(str(cluster), ENGINE, runs, settings, client=client("https://10.0.0.1:9443"))
    marks = [one["fingerprint"].get("generator") for one in (own, elsewhere, through)]
    assert marks == [
        None,
        {"host": "l1", "url": "http://10.0.0.1:8000"},
        {"host": "l1", "url": "https://10.0.0.1:9443"},
    ]


def test_what_would_not_reach_the_engine_alone_is_refused() -> None:
    whole = plan(("a", "m"), ("b", "m"), ("c", "n"))

    def refused(load: dict[str, str], key: str, door: str, engine: str) -> list[str]:
        rows = served.load_measurements(whole, "l1", load, key, door, engine)
        return [row["what"] for row in rows if not row["ok"]]

    assert refused(LOAD, "", "", "") == []
    assert refused({}, "", "", "") == ["l1 was prepared by this run"]
    assert refused(LOAD, "key", "", "c") == ["a door for the client's key"]
    assert refused(LOAD, "key", "clients", "c") == []
    assert refused(LOAD, "key", "clients", "a") == ["a alone answers for m at the door"]
    # Each engine is asked by its own address.
    assert refused(LOAD, "", "clients", "") == []
    assert served.client({}, "https://10.0.0.1:9443") == {}


def test_engines_of_a_set_are_one_name_at_the_door() -> None:
    """The door offers the set's address alone."""
    whole = plan(("p", "m"), ("d", "m"), ("c", "n"))
    for one, role in zip(whole["engines"], (PREFILL, DECODE), strict=False):
        one.update(role=role, hosts=["n1"])
    whole["engines"][1]["front"] = PAIRS
    for engine in ("", "p", "d"):
        rows = served.load_measurements(whole, "l1", LOAD, "key", "clients", engine)
        assert [row["what"] for row in rows if not row["ok"]] == []


@pytest.mark.parametrize(
    ("own", "line", "page_says"),
    [
        ({}, "load generator beside the engine on n1", "ran on n1, beside the engine"),
        (
            {"host": "l1", "url": "https://10.0.0.1:9443"},
            "load from l1 to https://10.0.0.1:9443",
            "ran on l1, a host of its own, and asked https://10.0.0.1:9443",
        ),
    ],
)
def test_the_report_says_where_the_load_came_from(
    own: dict[str, str], line: str, page_says: str
) -> None:
    ramped = ramps.asked(rounds=1)
    mark = {"plan": "p", "instance": "i", "ramp": {**ramps.vars_of(ramped), "steps": []}}
    points = ramps.points(ramped)
    for one in points:
        one["figures"]["client_host_cpus"] = 4 if own else None
    document = {
        "engine": "chat",
        "model": "m",
        "fingerprint": {**mark, **({"generator": own} if own else {})},
        "points": points,
    }
    result = report.found(document, ramps.ENGINE, ramps.PRICE)
    assert line in report.line(result)
    assert page_says in page(result)
    # Of the CPUs of the host that it ran on: 2 of the engine's, 4 of its own.
    assert result["generator"]["share"] == pytest.approx(0.1 / (4 if own else 2))


def row(at: float, running: int, ran: float) -> dict[str, Any]:
    sockets = dict.fromkeys(
        ("server", "server_unsent", "server_unread", "client", "client_unread"), 0
    )
    gauges = {"running": running, "waiting": 0, "usage": 0.5, "cache_tokens": 128}
    return {
        "at": at,
        "gauges": gauges if running >= 0 else {},
        "threads": {"client": {"7": [int(ran * 1e9), 0]}, "front_end": {}, "engine": {}},
        "ticks": {"client": {"7": int(ran * 100)}, "front_end": {}, "engine": {}},
        "host": [int(at * 100), int(at * 400)],
        "sockets": sockets,
        "network": {},
    }


def test_samples_of_two_hosts_come_together_although_their_clocks_differ(tmp_path: Path) -> None:
    of_engine, of_client = tmp_path / "engine", tmp_path / "client"
    running = [0, 0, 4, 4, 4, 0]
    rows = [row(1000 + number, one, 0) for number, one in enumerate(running)]
    of_engine.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    # Before its first request the client loads what it needs, which is no part of the load.
    spent = [0, 9, 9.5, 10, 10.5]
    rows = [row(5 + number, -1, one) for number, one in enumerate(spent)]
    of_client.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    watched = {"watched": {"rows": str(of_engine)}, "client_watched": {"rows": "there"}}
    raw = {"start_times": [6.0], "latencies": [3.0]}
    found = ramp._sampled(watched, raw, str(of_client))
    assert (found["samples"], found["running_mean"]) == (3, 4)
    assert (found["client_busy"], found["client_cpus"]) == (0.5, 0.5)
    assert found["client_host_cpus"] == found["host_cpus"]
    # Without a host of its own, what the client's clock says holds for all samples.
    found = ramp._sampled({"watched": {"rows": str(of_client)}}, raw, "nowhere")
    assert (found["samples"], found["client_host_cpus"]) == (4, None)
    assert load_samples.loaded([row(1, -1, 0)]) == [row(1, -1, 0)]


HOSTS = [{"name": "n1", "address": "10.0.0.1"}, {"name": "n2", "address": "10.0.0.2"}]
AT_FIRST = "https://10.0.0.1:9443"
DOORS: dict[str, tuple[dict[str, Any], str, str]] = {
    "head": ({}, AT_FIRST, "/c/d.crt"),
    "another host": ({"door_host": "n2"}, "https://10.0.0.2:9443", "/c/d.crt"),
    "several": ({"door_hosts": ["n2", "n1"]}, "https://10.0.0.2:9443", "/c/d.crt"),
    # Known to that host by its own means, and made for a name.
    "a given certificate": (
        {"door_certificate_file": "/k/a.crt", "door_names": ["llm.example.org"]},
        "https://llm.example.org:9443",
        "",
    ),
    # Where RunPod publishes it on the internet, at another port.
    "published": (
        {"benchmark_load": {**LOAD, "door": "198.51.100.1:30443"}},
        "https://198.51.100.1:30443",
        "/c/d.crt",
    ),
    "published with a given certificate": (
        {
            "benchmark_load": {**LOAD, "door": "198.51.100.1:30443"},
            "door_certificate_file": "/k/a.crt",
            "door_names": ["llm.example.org"],
        },
        "https://llm.example.org:30443",
        "",
    ),
    "given without a name": ({"door_certificate_file": "/k/a.crt"}, AT_FIRST, ""),
}


def played(tmp_path: Path, tasks: list[dict[str, Any]], **variables: Any) -> None:
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": [str(ROOT / "roles/benchmark/vars/main.yml")],
        "vars": {
            "ansible_python_interpreter": warm.python(),
            "site_head": "n1",
            "site_hosts": HOSTS,
            **variables,
        },
        "tasks": tasks,
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "VLLM_ANSIBLE_RUNS_DIR": str(tmp_path / "runs"),
    }
    done = warm.play(["-i", "localhost,", "-c", "local", tmp_path / "play.yml"], ROOT, environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.plays
def test_the_door_is_asked_at_its_address_or_by_the_name_of_a_given_certificate(
    tmp_path: Path,
) -> None:
    tasks = [
        {
            "name": "Write down what the client is given",
            "ansible.builtin.copy": {
                "content": "{{ benchmark_client | to_json }}",
                "dest": str(tmp_path / name),
            },
            "vars": {"benchmark_load": LOAD, "benchmark_load_key_file": "/k/alice", **variables},
        }
        for name, (variables, _, _) in DOORS.items()
    ]
    played(tmp_path, tasks)
    for name, (_, url, certificate) in DOORS.items():
        found = json.loads((tmp_path / name).read_text())
        assert (found["url"], found["certificate"]) == (url, certificate), name


@pytest.mark.plays
def test_the_client_trusts_the_certificate_that_the_door_shows(tmp_path: Path) -> None:
    """Also where the door was offered with another list of doors, and with this one again."""
    door = tmp_path / "door"
    for name in ("tls", "settings"):
        (door / name).mkdir(parents=True)
    for name, at in (("shown", 1000), ("of-other-doors", 2000)):
        (door / f"tls/{name}.crt").write_text(name)
        os.utime(door / f"tls/{name}.crt", (at, at))
    template = (ROOT / "roles/door/templates/haproxy.cfg.j2").read_text()
    (bind,) = [line for line in template.splitlines() if line.startswith("    bind ")]
    bind = bind.replace("{{ door_listen }}", "*:9443").replace(
        "{{ door_tls }}", f"{door}/tls/shown"
    )
    (door / "settings/haproxy.cfg").write_text(f"global\nfrontend door\n{bind}\n    acl health\n")
    trusted = tmp_path / "trusted.crt"
    played(
        tmp_path,
        [
            {
                "import_tasks": str(ROOT / "roles/benchmark/tasks/load_door.yml"),
                "vars": {"benchmark_load": {"name": "l1", "certificate": str(trusted)}},
            }
        ],
        site_host={"cluster_dir": str(tmp_path)},
        site_hosts=[{"name": "localhost", "cluster_dir": str(tmp_path)}],
        site_head="localhost",
    )
    assert trusted.read_text() == "shown"
