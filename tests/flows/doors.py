"""Two doors of two lab hosts before three engines, their clients, and who asks."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from vllm_ansible.lab import Lab

from .clone import Clone, Ran, Running, wait_until
from .two_hosts import PYTHON

CLUSTER, PORT = "doors", 9443
DIRECTORY = f"/opt/vllm-ansible/{CLUSTER}"
ADMIN = f"/run/vllm-{CLUSTER}/door/admin.sock"
HOSTS, OUTSIDE = ("lab1", "lab2"), "lab3"
CHAT, TINY = "smollm2-135m-instruct", "tiny"
ONE = {"tensor": 1, "pipeline": 1}
ARGUMENTS = {"max_model_len": 2048, "dtype": "float32", "enforce_eager": True}
ENGINES: list[dict[str, Any]] = [
    *(
        {
            "name": name,
            "model": f"package:{CHAT}",
            "executor": "mp",
            "layout": ONE,
            "hosts": [host],
            "vllm_args": {**ARGUMENTS, "kv_cache_memory_bytes": 1 << 28, "max_num_seqs": 8},
            "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
        }
        for name, host in (("left", "lab1"), ("right", "lab2"))
    ),
    {
        "name": TINY,
        "served_name": TINY,
        "model": "random:llama",
        "executor": "mp",
        "layout": ONE,
        "hosts": ["lab2"],
        "vllm_args": {**ARGUMENTS, "max_model_len": 512, "kv_cache_memory_bytes": 1 << 26},
    },
]
# One client without a limit, and one for each limit.
CLIENTS: dict[str, tuple[str, ...]] = {
    "free": (),
    "minute": ("--requests-per-minute", "5"),
    "once": ("--at-once", "2"),
    "day": ("--tokens-per-day", "150"),
    "narrow": ("--model", TINY),
}
COUNTERS = {
    "requests": "vllm:request_success_total",
    "read": "vllm:prompt_tokens_total",
    "made": "vllm:generation_tokens_total",
}
PAGES = """
import json, sys, urllib.request
urls = json.loads(sys.argv[1])
print(json.dumps([urllib.request.urlopen(url, timeout=60).read().decode() for url in urls]))
"""
# What docs/door.md says to ask by socat.
SAY = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as admin:
    admin.connect(sys.argv[1])
    admin.sendall(sys.argv[2].encode() + b"\\n")
    text = b""
    while piece := admin.recv(65536):
        text += piece
print(json.dumps(text.decode()))
"""


@dataclass(frozen=True)
class Answer:
    """What the door answered; status 0 is no answer."""

    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, Any]:
        """What it refuses with, which has OpenAI's form."""
        found: dict[str, Any] = self.content["error"]
        assert set(found) == {"message", "type", "param", "code"}, self
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = [one[6:] for one in self.text.splitlines() if one.startswith("data: {")]
        return [json.loads(one) for one in lines]

    @property
    def whole(self) -> bool:
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return self.status == 200 and self.text.rstrip().endswith("[DONE]")
        return self.status == 200 and "choices" in self.content


class Doors:
    """The cluster, the clone that operates it, and an outside host."""

    def __init__(self, directory: Path) -> None:
        self.clone = Clone(directory / "clone")
        self.inventory = self.clone.directory / "inventories" / CLUSTER
        self.lab = Lab.create(
            hosts=3,
            name="flow-doors",
            second_network=True,
            inventory=self.inventory,
            root=directory,
        )
        self.clients = directory / "clients.yml"
        kept = directory / "keys.json"
        if not kept.exists():
            keys = {name: self._add(name, *limits) for name, limits in CLIENTS.items()}
            kept.write_text(json.dumps(keys))
        self.keys: dict[str, str] = json.loads(kept.read_text())
        hosts = self.inventory / "hosts.yml"
        content = yaml.safe_load(hosts.read_text())
        groups = content["all"]["children"]
        outside = groups["gpu"]["hosts"].pop(OUTSIDE)
        groups["load"] = {"hosts": {OUTSIDE: {**outside, "accelerator": "cpu"}}}
        hosts.write_text(yaml.safe_dump(content))
        variables = {
            "cluster_name": CLUSTER,
            "accelerator": "cpu",
            "accelerator_count": 2,
            "privileges": "root",
            "vllm_reference_gib": 0,
            "engines": ENGINES,
            "door_clients_file": str(self.clients),
            "door_hosts": list(HOSTS),
            "door_address": "all",
        }
        (self.inventory / "group_vars").mkdir(exist_ok=True)
        (self.inventory / "group_vars/all.yml").write_text(yaml.safe_dump(variables))
        self._context: ssl.SSLContext | None = None

    def _add(self, name: str, *limits: str) -> str:
        return self.key("add", name, *limits).stdout.strip()

    def key(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `vllm-ansible key`."""
        command = [Path(sys.executable).with_name("vllm-ansible"), "key", *words]
        return subprocess.run(
            [*command, "--file", self.clients], capture_output=True, text=True, check=True
        )

    def start(self, *arguments: str, playbook: str = "site.yml") -> Running:
        return self.clone.start(self.inventory, *arguments, playbook=playbook)

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.clone.run(self.inventory, *arguments, playbook=playbook)

    def python(self, host: str, program: str, *arguments: str) -> Any:
        """Return what a program prints as JSON on a host."""
        return json.loads(self.lab.run(host, [PYTHON, "-c", program, *arguments]).stdout)

    def door(self, host: str) -> str:
        """Return the address at which clients find the door of a host."""
        return self.lab.address(host, self.lab.record.networks[0].role)

    @property
    def context(self) -> ssl.SSLContext:
        """What trusts the certificate of the doors, and nothing else."""
        if self._context is None:
            shown = self.lab.run("lab1", ["sh", "-c", f"cat {DIRECTORY}/door/tls/*.crt"]).stdout
            self._context = ssl.create_default_context(cadata=shown)
        return self._context

    @contextlib.contextmanager
    def asked(
        self, key: str, at: str, path: str, body: dict[str, Any] | None, timeout: float
    ) -> Iterator[http.client.HTTPResponse]:
        """Send one request to a door, over a connection of its own."""
        connection = http.client.HTTPSConnection(
            self.door(at), PORT, timeout=timeout, context=self.context
        )
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        try:
            if body is None:
                connection.request("GET", path, headers=headers)
            else:
                connection.request("POST", path, json.dumps(body), headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(
        self,
        client: str,
        at: str = "lab1",
        path: str = "/v1/completions",
        timeout: float = 300,
        **body: Any,
    ) -> Answer:
        """Ask a door, for 8 tokens unless the body says otherwise; a key may stand for a client."""
        asks = {"model": CHAT, "prompt": "Once upon", "max_tokens": 8, "ignore_eos": True, **body}
        try:
            with self.asked(
                self.keys.get(client, client),
                at,
                path,
                asks if "complet" in path else None,
                timeout,
            ) as answer:
                text = answer.read().decode()
                return Answer(answer.status, text, {k.lower(): v for k, v in answer.getheaders()})
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, f"{type(error).__name__}: {error}")

    def engine_urls(self) -> list[str]:
        plan = json.loads(self.lab.run("lab1", ["cat", f"{DIRECTORY}/plan.json"]).stdout)
        ports = {one["name"]: one["ports"]["api"] for one in plan["engines"]}
        return [
            f"http://{self.lab.address(one['hosts'][0])}:{ports[one['name']]}" for one in ENGINES
        ]

    def counted(self) -> dict[str, dict[str, float]]:
        """Return what each engine has counted since its start, as it says itself."""
        urls = json.dumps([f"{url}/metrics" for url in self.engine_urls()])
        pages = self.python("lab2", PAGES, urls)
        return {
            engine["name"]: {name: _total(page, one) for name, one in COUNTERS.items()}
            for engine, page in zip(ENGINES, pages, strict=True)
        }

    def say(self, host: str, words: str) -> str:
        """Say something to the admin socket of a door."""
        return str(self.python(host, SAY, ADMIN, words))

    def server(self, host: str, engine: str) -> dict[str, str]:
        """Return how the door of a host sees an engine."""
        lines = self.say(host, "show stat").lstrip("# ").splitlines()
        names = lines[0].split(",")
        rows = [dict(zip(names, one.split(","), strict=False)) for one in lines[1:] if one]
        (found,) = [one for one in rows if one["svname"] == f"{engine}-serve"]
        return found

    def set_state(self, engine: str, state: str) -> None:
        """Have both doors give an engine no requests, or requests again."""
        for host in HOSTS:
            name = f"{self.server(host, engine)['pxname']}/{engine}-serve"
            assert self.say(host, f"set server {name} state {state}").strip() == ""


def _total(page: str, name: str) -> float:
    lines = [one for one in page.splitlines() if one.startswith((f"{name}{{", f"{name} "))]
    return sum(float(one.rpartition(" ")[2]) for one in lines)


class Used:
    """What the engines of some names counted within a block; none but these were asked."""

    def __init__(self, doors: Doors, *engines: str) -> None:
        self.doors, self.engines = doors, engines or ("left", "right")

    def __enter__(self) -> Self:
        self.before = self.doors.counted()
        return self

    def __exit__(self, *_: object) -> None:
        """Keep `before`; who looks asks `holds`."""

    def now(self) -> dict[str, float]:
        after = self.doors.counted()
        return {
            what: sum(after[one][what] - self.before[one][what] for one in self.engines)
            for what in COUNTERS
        }

    def holds(self, **wanted: float) -> None:
        """See that the engines counted exactly this; a counter may follow an answer."""

        def equal() -> bool:
            self.found = {what: self.now()[what] for what in wanted}
            return any(self.found[what] >= wanted[what] for what in wanted)

        wait_until(equal, 60, f"{wanted} by the engines")
        # What was too much would come later.
        time.sleep(2)
        found = self.now()
        assert {what: found[what] for what in wanted} == wanted


@dataclass(frozen=True)
class Asked:
    """One request of a user: when it began, at which door it was answered, and what was wrong."""

    began: float
    at: str
    lost: tuple[str, ...]
    wrong: str


class Load:
    """Users without a limit, who ask the other door where one does not answer, and stay there.

    The first two begin at the first door, the others at the second. patience: seconds.
    """

    def __init__(self, doors: Doors, patience: float = 300) -> None:
        self.doors, self.patience, self.over = doors, patience, threading.Event()
        self.requests: list[Asked] = []
        self.threads = [
            threading.Thread(target=self.work, args=(number % 2 == 0, HOSTS[number // 2]))
            for number in range(4)
        ]

    def work(self, stream: bool, at: str) -> None:
        while not self.over.is_set():
            began, lost = time.time(), list[str]()
            for _ in HOSTS:
                answer = self.doors.ask("free", at, stream=stream, timeout=self.patience)
                if answer.whole or answer.status >= 400:
                    break
                # No answer, or a part of one: the door is gone.
                lost.append(f"{at}: {answer.status} {answer.text[-200:]}")
                at = HOSTS[1 - HOSTS.index(at)]
            wrong = "" if answer.whole else f"{answer.status}: {answer.text[-300:]}"
            self.requests.append(Asked(began, at, tuple(lost), wrong))
            self.over.wait(0.1)

    def after(self, moment: float) -> list[Asked]:
        return [one for one in self.requests if one.began >= moment]

    @property
    def failed(self) -> list[Asked]:
        return [one for one in self.requests if one.wrong]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        lost = sum(len(one.lost) for one in self.requests)
        print(f"{len(self.requests)} requests, {lost} asked again, {len(self.failed)} failed")
