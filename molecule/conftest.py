"""What the tests of all scenarios share: they look at hosts without any code of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import testinfra
from testinfra.host import Host

INVENTORY = str(Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", ".")) / "inventory")
# Standard library only: it runs with the Python of a host.
ASK = """
import json, sys, urllib.error, urllib.request
url, token_file, body = sys.argv[1:]
token = {"Authorization": "Bearer " + open(token_file).read().strip()} if token_file else {}
headers = {**token, "Content-Type": "application/json"}
request = urllib.request.Request(url, body.encode() or None, headers)
try:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        print(json.dumps([answer.status, answer.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, error.read().decode()]))
"""
# Prints where a secret can be read that is not its own file.
SEARCH = """
import json, os, sys
secret = open(sys.argv[1], "rb").read().strip()
places = [
    f"/proc/{pid}/{name}"
    for pid in os.listdir("/proc")
    if pid.isdigit()
    for name in ("cmdline", "environ")
]
for top, _, names in os.walk(sys.argv[2]):
    places += [os.path.join(top, name) for name in names]
found = []
for place in places:
    try:
        with open(place, "rb") as handle:
            if secret in handle.read():
                found.append(place)
    except OSError:
        pass
assert len(secret) >= 32 and len(places) > 20
print(json.dumps(found))
"""
# Prints the processes that were started for a record, and their descendants.
FAMILY = """
import json, os, pwd, sys
mark = b"VLLM_ANSIBLE_PROCESS=" + sys.argv[1].encode()
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            if mark not in handle.read().split(b"\\0"):
                continue
        with open(f"/proc/{pid}/cmdline", "rb") as handle:
            arguments = handle.read().replace(b"\\0", b" ").decode(errors="replace")
        user = pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid).pw_name
        found.append({"pid": int(pid), "user": user, "arguments": arguments})
    except OSError:
        pass
print(json.dumps(found))
"""


@pytest.fixture
def name(host: Host) -> str:
    """Return the name of the host in the inventory."""
    return str(host.ansible.get_variables()["inventory_hostname"])


@pytest.fixture
def cluster_dir() -> str:
    """Return the directory of the scenarios' cluster on every host."""
    return "/opt/vllm-ansible/molecule"


@pytest.fixture(scope="session")
def head() -> Host:
    """Return the first host, which keeps what belongs to the whole cluster."""
    return testinfra.get_host("ansible://lab1", ansible_inventory=INVENTORY)


@pytest.fixture
def plan(head: Host, cluster_dir: str) -> dict[str, Any]:
    """Return the one engine of the plan that lies on the head."""
    found = json.loads(head.file(f"{cluster_dir}/plan.json").content_string)
    assert [engine["name"] for engine in found["engines"]] == ["chat"]
    engine: dict[str, Any] = found["engines"][0]
    return engine


@pytest.fixture
def data_addresses() -> dict[str, str]:
    """Return the address of each host on the network for data, as its own kernel tells it."""
    found = {}
    for host in testinfra.get_hosts(["gpu"], connection="ansible", ansible_inventory=INVENTORY):
        shown = json.loads(host.check_output("ip -j -4 address show eth1"))
        name = host.ansible.get_variables()["inventory_hostname"]
        found[name] = shown[0]["addr_info"][0]["local"]
    return found


@pytest.fixture
def owned(host: Host) -> Callable[[str, str, int], None]:
    """Return an assertion about the owner and the mode of a file or directory."""

    def check(path: str, user: str, mode: int) -> None:
        found = host.file(path)
        assert found.exists, path
        assert (path, found.user, oct(found.mode)) == (path, user, oct(mode))

    return check


@pytest.fixture
def python(host: Host) -> Callable[..., Any]:
    """Return a way to run a program with a Python of the host; it prints JSON."""

    def run(program: str, *arguments: str, interpreter: str = "/usr/bin/python3") -> Any:
        words = [interpreter, "-c", program, *arguments]
        return json.loads(host.check_output(" ".join(["%s"] * len(words)), *words))

    return run


@pytest.fixture
def mentions(python: Callable[..., Any]) -> Callable[[str, str], list[str]]:
    """Return a search of a secret in every process of the host and below a directory."""

    def search(secret_file: str, directory: str) -> list[str]:
        found: list[str] = python(SEARCH, secret_file, directory)
        return found

    return search


@pytest.fixture
def ask(python: Callable[..., Any]) -> Callable[..., tuple[int, Any]]:
    """Return a way to send a request from the host: status and body, with a token or without."""

    def send(url: str, token_file: str = "", body: Any = None) -> tuple[int, Any]:
        status, text = python(ASK, url, token_file, json.dumps(body) if body else "")
        return status, json.loads(text) if text.startswith("{") else text

    return send


@pytest.fixture
def family(python: Callable[..., Any], cluster_dir: str) -> Callable[[str], list[dict[str, Any]]]:
    """Return the processes that carry the mark of one of our records: pid, user and arguments."""

    def find(process: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = python(FAMILY, f"{cluster_dir}/processes/{process}.json")
        return found

    return find
