"""What routers and Dynamo lack on a host is said before its engines load, with what to do."""

from __future__ import annotations

import getpass
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests import warm

ROOT = Path(__file__).parents[3]
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")
GIVEN = ("router_wanted", "router_fronted", "router_paired", "router_beside", "router_openssl")
BOOK = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.include_role": {"name": "router", "tasks_from": "ready"},
                # What the role finds out of a plan.
                "vars": {name: f"{{{{ given.{name} }}}}" for name in GIVEN},
            }
        ],
    }
]
ROUTED = [{"engine": "chat", "dynamo": {}}]
DYNAMO = {
    "router_wanted": [{"engine": "chat", "dynamo": {"url": "http://127.0.0.1:1"}}],
    "router_fronted": ["chat"],
    "router_beside": [{"engine": "chat"}],
}
BESIDE = {"router_wanted": [], "router_beside": [{"engine": "chat"}]}
PAIRS = {
    "router_wanted": [{"engine": "write", "dynamo": {}, "pairs": {"process": "write-pairs"}}],
    "router_paired": ["write"],
}


@dataclass(frozen=True)
class Host:
    """What one host has, what is wanted on it, and what is said of it; nothing where it is fine."""

    said: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    root: bool = False
    given: dict[str, Any] = field(default_factory=lambda: DYNAMO)


HOSTS = {
    "unwanted": Host(root=True, given={"router_wanted": []}),
    "has-haproxy": Host(there=("haproxy",), root=True, given={"router_wanted": ROUTED}),
    "unprivileged": Host(given={"router_wanted": ROUTED}),
    "no-package": Host(
        ("a repository of the distribution that no-package reaches", "router_mode: never"),
        root=True,
        given={"router_wanted": ROUTED},
    ),
    "required": Host(
        ("check failed: an HAProxy for the router", "or set router_mode: auto"),
        given={"router_wanted": ROUTED, "router_mode": "required"},
    ),
    "no-router": Host(("check failed: a router before Dynamo", "no /"), ("etcd", "nats")),
    "never": Host(
        ("check failed: a router before Dynamo", "router_mode: never"),
        given={**DYNAMO, "router_wanted": [], "router_beside": [], "router_mode": "never"},
    ),
    "no-store": Host(("/etcd and ", "/nats for Dynamo", "install etcd-server"), ("haproxy",)),
    "no-nats": Host(("/nats for Dynamo",), ("haproxy", "etcd")),
    "no-openssl": Host(
        ("/openssl for Dynamo", "and openssl, or name"),
        ("haproxy", "etcd", "nats"),
        given={
            **DYNAMO,
            "router_wanted": [{"engine": "chat", "dynamo": {"url": "u", "responses": 20004}}],
        },
    ),
    "no-index": Host(
        ("check failed: Dynamo can be installed", "no such index", "or remove front: dynamo"),
        ("haproxy", "etcd", "nats"),
    ),
    "pairs-never": Host(
        ("check failed: a router before prefill and decode", "router_mode: never"),
        given={**PAIRS, "router_wanted": [], "router_mode": "never"},
    ),
    "pairs-no-router": Host(("check failed: a router before prefill and decode",), given=PAIRS),
    "pairs-no-index": Host(
        ("check failed: vLLM's router can be installed", "or write role: serve for the engines"),
        ("haproxy",),
        given=PAIRS,
    ),
    # It has sidecars of an engine whose router, etcd and NATS are on another host.
    "beside-no-index": Host(("check failed: Dynamo can be installed",), given=BESIDE),
    "beside": Host(there=("index",), given=BESIDE),
    "fine": Host(there=("haproxy", "etcd", "nats", "index")),
}
# Of `uv venv ... DIRECTORY` and `uv pip sync`: where there is no index, no package comes.
UV = """#!/bin/sh
for last; do :; done
[ "$1" = venv ] && exec mkdir -p "$last"
[ -e {index} ] && exit 0
echo resolving >&2
echo no such index >&2
exit 2
"""


def variables(name: str, host: Host, place: Path) -> dict[str, Any]:
    """Make what a host has, and return what the role is told of it."""
    uv = place / "cluster/tools/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(UV.format(index=place / "index"))
    uv.chmod(0o755)
    for one in host.there:
        (place / one).touch()
    return {
        "router_haproxy": str(place / "haproxy"),
        "router_etcd": str(place / "etcd"),
        "router_nats": str(place / "nats"),
        # Debian's own module would install python3-apt here: that of another family fails alike.
        "site_host": {
            "distribution": "rocky",
            "privileges": "root" if host.root else "none",
            "pid1": "",
            "cluster_dir": str(place / "cluster"),
            "service_user": getpass.getuser(),
        },
        "router_mode": host.given.get("router_mode", "auto"),
        "given": {
            **{name: [] for name in ("router_fronted", "router_paired", "router_beside")},
            "router_openssl": str(place / "openssl"),
            **host.given,
        },
    }


def play(directory: Path, *words: str) -> tuple[int, dict[str, str]]:
    """Play it on all hosts at once; return its exit status and the failure of each host."""
    hosts = {name: variables(name, one, directory / name) for name, one in HOSTS.items()}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    (directory / "book.yml").write_text(yaml.safe_dump(BOOK))
    given = {
        "router_package_names": ["vllm-ansible-is-no-package"],
        "sources_environment": {},
        "environment_installed": {"python": "3.11", "versions": {}},
        "ansible_python_interpreter": warm.python(),
    }
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"),
    }
    words = ("book.yml", "-i", "hosts.yml", "-c", "local", *words, "-e", json.dumps(given))
    ran = warm.play(words, directory, environment)
    events = directory / "runs/latest/events.jsonl"
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return ran.returncode, {
        one["host"]: json.dumps(one) for one in lines if one["event"] == "failure"
    }


def test_what_is_lacking_is_said_before_engines_load(tmp_path: Path) -> None:
    status, failures = play(tmp_path)
    assert status == 2
    assert set(failures) == {name for name, one in HOSTS.items() if one.said}
    for name, failure in failures.items():
        assert [one for one in HOSTS[name].said if one not in failure] == [], failure
    # What could not be installed is not marked as complete, or it would never be.
    made = [*tmp_path.glob("*/cluster/routers/*/environment/complete")]
    assert [path.relative_to(tmp_path).parts[0] for path in sorted(made)] == ["beside", "fine"]


def test_a_check_installs_nothing(tmp_path: Path) -> None:
    assert play(tmp_path, "--check", "--limit", "no-package,no-index") == (0, {})


def test_the_stage_installs_before_it_starts_engines() -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks/serve.yml").read_text())[1:]
    names = [one["name"] for one in play["tasks"]]
    place = names.index("Install what a router needs before engines load")
    assert place < names.index("Start the engines")
