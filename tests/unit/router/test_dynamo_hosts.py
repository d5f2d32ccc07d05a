"""How a host comes by what another host's Dynamo shares with its sidecars."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import yaml

ROLE = Path(__file__).parents[3] / "roles/router"
SHARED = {
    "run/dynamo3/password": "f" * 64,
    "cluster/routers/chat-dynamo/tls.crt": "-----BEGIN CERTIFICATE-----\n" + "A" * 64,
    "cluster/routers/chat-dynamo/tls.key": "-----BEGIN PRIVATE KEY-----\n" + "B" * 64,
}
NAMES = (
    *("router_base", "router_engine", "router_dynamo_dir"),
    *("router_dynamo_is_here", "router_dynamo_first", "router_dynamo_run_dir"),
)
READ, PUT = "Read it where etcd was started", "Put it where the sidecars of this host read it"


def variables(directory: Path) -> dict[str, dict[str, Any]]:
    """Return what the role knows on each host of one engine, and where it keeps what it has."""
    shown = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    sites = [
        {
            **{"name": name, "privileges": "none", "service_user": getpass.getuser()},
            **{"become": False, "run_dir": str(directory / name / "run")},
            "cluster_dir": str(directory / name / "cluster"),
        }
        for name in ("first", "second")
    ]
    return {
        str(site["name"]): {
            "site_hosts": sites,
            "site_host": site,
            "__router_one": {"engine": "chat", "index": 3, "dynamo": {"host": "first"}},
            **{name: shown[name] for name in NAMES},
        }
        for site in sites
    }


def test_what_is_shared_comes_from_the_first_host_and_is_printed_nowhere(
    tmp_path: Path, play: Any
) -> None:
    (task, _) = yaml.safe_load((ROLE / "tasks/dynamo_sidecars.yml").read_text())
    hosts = variables(tmp_path)
    for name in hosts:
        for file in SHARED:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
    # In a check etcd may not have been started yet.
    checked = play([task], hosts, flags=("--check",))
    assert not checked.tasks[READ]["second"].get("failed")
    assert not [one for one in (tmp_path / "second").rglob("*") if one.is_file()]
    for file, text in SHARED.items():
        (tmp_path / "first" / file).write_text(text)
    played = play([task], hosts, flags=("-vvv",))
    assert played.tasks[READ]["first"]["skipped"]
    assert played.tasks[PUT]["second"]["changed"]
    for file, text in SHARED.items():
        brought = tmp_path / "second" / file
        assert brought.read_text() == text
        assert brought.stat().st_mode & 0o777 == 0o600
        assert text[-64:] not in played.printed + str(played.tasks)
