"""Real Dynamo, etcd and NATS before one engine with a data rank on each of two lab hosts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab.commands import podman

from .clone import MINUTE, Ran, wait_until
from .conftest import CHAT
from .dynamo import programs
from .two_hosts import CLUSTER_DIR, TwoHosts

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.soak]
HOSTS = ("lab1", "lab2")
FRONT_END = "/opt/vllm-rs"
MODEL = "smollm2-135m-instruct"
KEY_FILE = f"{CLUSTER_DIR}/secrets/api_key"
RUN_DIR = "/run/vllm-demo"
PASSWORD = f"{RUN_DIR}/dynamo0/password"
FIRST = {"chat-etcd", "chat-nats", "chat-sidecar-0", "chat-dynamo", "chat-router", "chat-watch"}
# What listens for the other host, by host: of etcd, NATS, the answers to the frontend, and the
# requests to a sidecar.
BETWEEN = {
    "lab1": {20001, 20002, 20004, 20080},
    "lab2": {20081},
}
PRIVATE = {
    "lab1": {20003, 20016, 20020, 20040, 20060},
    "lab2": {20021, 20041, 20061},
}
# What a sidecar's own pages let anybody do who reaches them, without a key.
OPEN = {f"/engine/control/{name}_generation" for name in ("pause", "resume")}
SSHD = 22

# The likeliest tokens of each prompt: status and text, by way of one address.
ASK = """
import json, sys, urllib.error, urllib.request
url, key_file, model, tokens, *prompts = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
headers = {"Authorization": "Bearer " + open(key_file).read().strip()}
headers["Content-Type"] = "application/json"
found = []
for prompt in prompts:
    body = {
        "model": model, "messages": [{"role": "user", "content": prompt}],
        "max_tokens": int(tokens), "temperature": 0, "ignore_eos": True,
    }
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), headers)
    try:
        with opener.open(request, timeout=120) as answer:
            found.append([200, json.load(answer)["choices"][0]["message"]["content"]])
    except urllib.error.HTTPError as error:
        found.append([error.code, ""])
    except OSError as error:
        found.append([0, str(error)])
print(json.dumps(found))
"""
PROMPTS = ("What is the capital of France?", "Write a story about a ship.", "Count to twenty.")

# Address, port and systemd's unit of everything that listens on a host, as ss lists it.
LISTENING = """
import json, pathlib, re, subprocess
lines = subprocess.run(["ss", "-Hltnp"], check=True, capture_output=True, text=True).stdout
found = []
for line in lines.splitlines():
    address, _, port = line.split()[3].rpartition(":")
    pid = re.search("pid=([0-9]+)", line)
    group = pathlib.Path(f"/proc/{pid[1]}/cgroup").read_text() if pid else ""
    found.append([address.strip("[]"), int(port), group.strip().rpartition("/")[2]])
print(json.dumps(found))
"""

# Where a secret stands: mode and owner of its file, and whatever else has it.
FOUND = """
import json, os, pwd, sys
path, *tops = sys.argv[1:]
word = open(path, "rb").read()
mark, seen = os.stat(path), []
for top in tops:
    for place, folders, names in os.walk(top):
        if place == f"{os.path.dirname(path)}/etcd":  # whose journal has what it was given
            assert os.stat(place).st_mode & 0o077 == 0, place
            folders.clear()
            continue
        for name in names:
            file = os.path.join(place, name)
            if os.path.isfile(file) and file != path and word in open(file, "rb").read():
                seen.append(file)
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if word in open(f"/proc/{pid}/cmdline", "rb").read():
            seen.append(pid)
    except OSError:
        pass
owner = pwd.getpwuid(mark.st_uid).pw_name
print(json.dumps({"mode": mark.st_mode & 0o777, "owner": owner, "seen": seen, "length": len(word)}))
"""

# What somebody on the network is answered who has neither password nor key: etcd, NATS, where
# requests and answers go, a sidecar's own pages.
STRANGER = """
import json, socket, ssl, sys, urllib.error, urllib.request
etcd, nats, requests, *sidecars = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def post(url, body):
    try:
        with opener.open(urllib.request.Request(url, json.dumps(body).encode()), timeout=30) as one:
            return one.status
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError as error:
        return str(error.reason)

found = {"etcd": post(f"http://{etcd}/v3/kv/range", {"key": "AA==", "range_end": "AA=="})}
address, _, port = nats.rpartition(":")
with socket.create_connection((address, int(port)), timeout=30) as client:
    client.sendall(b"CONNECT {}\\r\\nPING\\r\\n")
    said = b""
    while b"-ERR" not in said and b"PONG" not in said and (piece := client.recv(4096)):
        said += piece
found["nats"] = "Authorization" if b"Authorization Violation" in said else said.decode()
def knock(place):
    address, _, port = place.rpartition(":")
    context = ssl._create_unverified_context()
    try:
        with socket.create_connection((address, int(port)), timeout=30) as plain:
            with context.wrap_socket(plain) as client:
                client.sendall(b"x")
                return "let in" if client.recv(1) else "ended"
    except socket.timeout:
        return "let in"
    except (ssl.SSLError, ConnectionError) as error:
        return str(getattr(error, "reason", "") or error)
found |= {"requests": {place: knock(place) for place in requests.split(",")}}
names = ("start_profile", "stop_profile", "sleep", "wake_up", "pause", "resume", "update_weights")
names += ("pause_generation", "resume_generation", "flush_cache", "clear_kv_blocks", "routes")
pages = [f"/engine/{kind}{name}" for kind in ("", "control/", "update/") for name in names]
for one in sidecars:
    found[one] = {page: post(f"http://{one}{page}", {}) for page in (*pages, "/v1/loras")}
print(json.dumps(found))
"""


class Spread(TwoHosts):
    """The cluster `demo`, whose engine has a data rank on each host, behind Dynamo."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        front_end = programs(directory).front_end
        for host in self.lab.record.hosts:
            podman("cp", front_end, f"{host.container}:{FRONT_END}")
        engine = {
            **{key: value for key, value in CHAT.items() if key != "port"},
            "layout": {"data": 2, "tensor": 1},
            "nodes": 2,
            "front": "dynamo",
            "environment": {"VLLM_RUST_FRONTEND_PATH": FRONT_END},
        }
        variables = {
            "cluster_name": "demo",
            "accelerator": "cpu",
            "accelerator_count": 1,
            "privileges": "root",
            "engines": [engine],
            # 15 s of processor time; test_computation.py has it.
            "vllm_reference_gib": 0,
        }
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))

    @property
    def url(self) -> str:
        return f"http://{self.lab.address('lab1')}:8000/v1"

    def ask(self, host: str, url: str, *prompts: str, tokens: int = 32) -> list[list[Any]]:
        """Return status and text of each prompt, asked on a host."""
        words = (url, KEY_FILE, MODEL, str(tokens), *prompts)
        found: list[list[Any]] = self.python(host, ASK, *words)
        return found

    def started(self, host: str, name: str) -> str:
        """Return by what systemd knows the present start of a process."""
        argv = ["systemctl", "show", "--property=InvocationID", "--value", f"vllm-demo-{name}"]
        found = self.lab.run(host, argv).stdout.strip()
        assert found
        return found

    def recorded(self, host: str) -> set[str]:
        names = self.lab.run(host, ["ls", f"{CLUSTER_DIR}/processes"]).stdout.split()
        kept = {name.removesuffix(".json") for name in names if not name.endswith(".state.json")}
        return {name for name in kept if name.startswith("chat-")}

    def kill(self, host: str, name: str) -> None:
        """SIGKILL all of a process's unit."""
        self.lab.run(host, ["systemctl", "kill", "--signal=KILL", f"vllm-demo-{name}"])

    def listening(self, host: str) -> set[tuple[str, int, str]]:
        return {
            (str(address), int(port), unit) for address, port, unit in self.python(host, LISTENING)
        }


@pytest.fixture(scope="module")
def spread(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spread]:
    """Return the cluster, not yet brought up; nothing of it stays behind, unless it is kept."""
    if kept := os.environ.get("VLLM_ANSIBLE_FLOW_DIR"):
        yield Spread(Path(kept))
        return
    made = Spread(tmp_path_factory.mktemp("spread"))
    yield made
    made.lab.down()


def routed(ran: Ran) -> dict[str, Any]:
    """Return what the gate of Dynamo keeps of a run that went well."""
    assert ran.status == 0, ran.output[-20_000:]
    kept = [one["values"] for one in ran.evidence("dynamo") if "repeats" in one["values"]]
    assert len(kept) == 1, ran.output
    found: dict[str, Any] = kept[0]
    assert found["workers"] == 2
    assert found["events"] > 0
    # All at one engine, by its own counter on its own host.
    assert len(found["repeats"]) == 6
    assert len({one.index(max(one)) for one in found["repeats"]}) == 1, found
    assert all(max(one) >= 2 * found["block_size"] for one in found["repeats"]), found
    assert all(min(one) == 0 for one in found["repeats"]), found
    return found


def test_repeats_go_to_the_host_whose_engine_has_them_in_its_cache(spread: Spread) -> None:
    ran = spread.start().result(40 * MINUTE)
    print(json.dumps(routed(ran)))
    (engine,) = spread.plan.values()
    assert [rank["host"] for rank in engine["ranks"]] == list(HOSTS)
    assert spread.recorded("lab1") == FIRST | {"chat-serve-0"}
    assert spread.recorded("lab2") == {"chat-sidecar-1", "chat-serve-1"}


def test_both_engines_answer_with_the_text_of_one_process(spread: Spread) -> None:
    """Each engine is one process; asked on loopback of its host there is no Dynamo between."""
    alone = spread.ask("lab1", "http://127.0.0.1:20020/v1", *PROMPTS)
    assert [status for status, _ in alone] == [200] * len(PROMPTS)
    assert "Paris" in alone[0][1]
    assert spread.ask("lab2", "http://127.0.0.1:20021/v1", *PROMPTS) == alone
    for host in HOSTS:
        assert spread.ask(host, spread.url, *PROMPTS) == alone


def test_nothing_listens_outside_loopback_and_the_data_plane(spread: Spread) -> None:
    front, plane = (one.role for one in spread.lab.record.networks)
    for host in HOSTS:
        heard = spread.listening(host)
        address = spread.lab.address(host, plane)
        loopback = {port for where, port, _ in heard if where.startswith("127.")}
        own = {port: unit for where, port, unit in heard if where == address}
        assert own.keys() >= BETWEEN[host], heard
        assert loopback >= PRIVATE[host], heard
        # PyTorch's store and Gloo's pairs, which an engine opens there with or without Dynamo.
        engines = {port for port, unit in own.items() if "-serve-" in unit}
        # The address by which clients ask, with its keys.
        clients = {8000} if host == "lab1" else set()
        assert own.keys() - BETWEEN[host] - engines <= clients, heard
        assert not engines & BETWEEN[host], heard
        others = {
            port for where, port, _ in heard if where != address and not where.startswith("127.")
        }
        assert others <= {SSHD}, heard
        assert spread.lab.address(host, front) not in {where for where, _, _ in heard}


def test_the_password_is_in_one_file_of_each_host_and_nowhere_else(spread: Spread) -> None:
    tops = [f"{CLUSTER_DIR}/{name}" for name in ("logs", "processes", "routers/chat-dynamo")]
    tops += [RUN_DIR, "/etc/systemd", "/var/log"]
    for host in HOSTS:
        found = spread.python(host, FOUND, PASSWORD, *tops)
        # NATS and Dynamo were given it in their environment alone.
        assert found == {"mode": 0o600, "owner": "vllm-demo", "seen": [], "length": 64}, host
        key = f"{CLUSTER_DIR}/routers/chat-dynamo/tls.key"
        assert spread.python(host, FOUND, key, *tops, f"{CLUSTER_DIR}/secrets")["mode"] == 0o600
    words = {spread.lab.run(host, ["cat", PASSWORD]).stdout for host in HOSTS}
    (word,) = words
    runs = [path for path in (spread.clone.directory / "runs").rglob("*") if path.is_file()]
    assert runs
    assert not [path for path in runs if word in path.read_text(errors="replace")]


def test_who_has_no_password_is_let_in_nowhere(spread: Spread) -> None:
    one, two = (spread.lab.address(host) for host in HOSTS)
    sidecars = (f"{one}:20060", f"{two}:20061")
    # The same questions find these pages where they are open.
    inside = "127.0.0.1:20061"
    requests = f"{one}:20080,{two}:20081,{one}:20004"
    found = spread.python(
        "lab2", STRANGER, f"{one}:20001", f"{one}:20002", requests, *sidecars, inside
    )
    print(json.dumps(found))
    assert found["etcd"] in (400, 401, 403)
    assert found["nats"] == "Authorization"
    assert not {"let in", "ended"} & set(found["requests"].values()), found["requests"]
    for place in sidecars:
        assert set(found[place].values()) == {"[Errno 111] Connection refused"}, found[place]
    answered = {page for page, status in found[inside].items() if status not in (404, 405)}
    assert answered == OPEN, found[inside]


def test_the_second_run_changes_nothing(spread: Spread) -> None:
    before = spread.processes()
    ran = spread.run()
    routed(ran)
    assert ran.changed == []
    assert spread.processes() == before
    looked = spread.run(playbook="playbooks/status.yml")
    assert looked.status == 0, looked.output
    (knows,) = looked.evidence("dynamo")
    assert "sends requests to 2 of 2 engines" in knows["summary"]


def test_an_engine_that_dies_on_one_host_is_taken_out_and_comes_back(spread: Spread) -> None:
    kept = spread.started("lab1", "chat-serve-0")
    before = spread.started("lab2", "chat-serve-1")
    spread.kill("lab2", "chat-serve-1")
    prompts = [f"{number} ships" for number in range(12)]

    def answered() -> bool:
        return {code for code, _ in spread.ask("lab1", spread.url, *prompts, tokens=4)} == {200}

    wait_until(answered, 3 * MINUTE, "twelve answers in a row", every=1)
    looked = spread.run(playbook="playbooks/status.yml")
    assert looked.status == 2, looked.output
    assert "chat does not run" in looked.failure["msg"]
    routed(spread.run())
    assert spread.started("lab1", "chat-serve-0") == kept
    assert spread.started("lab2", "chat-serve-1") != before


def test_a_host_that_lost_what_it_was_given_has_it_again(spread: Spread) -> None:
    """As one does that was replaced: first with a sidecar alone, then with etcd and password."""
    word = spread.lab.run("lab1", ["cat", PASSWORD]).stdout
    spread.lab.run("lab2", ["systemctl", "stop", "vllm-demo-chat-sidecar-1"])
    spread.lab.run("lab2", ["rm", "-rf", f"{RUN_DIR}/dynamo0"])
    routed(spread.run(playbook="playbooks/serve.yml"))
    assert spread.lab.run("lab2", ["cat", PASSWORD]).stdout == word
    sidecar = spread.started("lab2", "chat-sidecar-1")
    for name in ("chat-dynamo", "chat-sidecar-0", "chat-nats", "chat-etcd"):
        spread.lab.run("lab1", ["systemctl", "stop", f"vllm-demo-{name}"])
    spread.lab.run("lab1", ["rm", "-rf", f"{RUN_DIR}/dynamo0"])
    routed(spread.run(playbook="playbooks/serve.yml"))
    (new,) = {spread.lab.run(host, ["cat", PASSWORD]).stdout for host in HOSTS}
    assert new != word
    # It was registered with an etcd that is no more.
    assert spread.started("lab2", "chat-sidecar-1") != sidecar
    again = spread.run(playbook="playbooks/serve.yml")
    routed(again)
    assert again.changed == []


def test_stop_and_start_and_teardown_leave_nothing(spread: Spread) -> None:
    stopped = spread.run(playbook="playbooks/stop.yml")
    assert stopped.status == 0, stopped.output
    assert spread.processes() == {"lab1": [], "lab2": []}
    routed(spread.run(playbook="playbooks/start.yml"))
    ran = spread.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    assert spread.processes() == {"lab1": [], "lab2": []}
    for host in HOSTS:
        assert {port for _, port, _ in spread.listening(host)} <= {SSHD}
        gone = spread.lab.run(host, ["ls", RUN_DIR, f"{CLUSTER_DIR}/processes"], check=False)
        assert gone.returncode != 0, gone.stdout
