"""How a host comes by the password of another host's Dynamo."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import yaml

ROLE = Path(__file__).parents[3] / "roles/router"
WORD = "f" * 64
READ, PUT = "Read it where etcd was started", "Put it where the sidecars of this host read it"


def variables(directory: Path) -> dict[str, dict[str, Any]]:
    """Return what the role knows on each host of one engine, and where it keeps what it has."""
    shown = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    sites = [
        {
            **{"name": name, "privileges": "none", "service_user": getpass.getuser()},
            **{"become": False, "run_dir": str(directory / name)},
        }
        for name in ("first", "second")
    ]
    return {
        str(site["name"]): {
            "site_hosts": sites,
            "site_host": site,
            "__router_one": {"engine": "chat", "index": 3, "dynamo": {"host": "first"}},
            **{
                name: shown[name]
                for name in (
                    "router_dynamo_is_here",
                    "router_dynamo_first",
                    "router_dynamo_run_dir",
                )
            },
        }
        for site in sites
    }


def test_the_password_comes_from_the_first_host_and_is_printed_nowhere(
    tmp_path: Path, play: Any
) -> None:
    (task, _) = yaml.safe_load((ROLE / "tasks/dynamo_sidecars.yml").read_text())
    hosts = variables(tmp_path)
    for name in hosts:
        (tmp_path / name / "dynamo3").mkdir(parents=True, mode=0o700)
    # In a check etcd may not have been started yet.
    checked = play([task], hosts, flags=("--check",))
    assert not checked.tasks[READ]["second"].get("failed")
    file = tmp_path / "first/dynamo3/password"
    file.write_text(WORD)
    file.chmod(0o600)
    played = play([task], hosts, flags=("-vvv",))
    assert played.tasks[READ]["first"]["skipped"]
    assert played.tasks[PUT]["second"]["changed"]
    brought = tmp_path / "second/dynamo3/password"
    assert brought.read_text() == WORD
    assert brought.stat().st_mode & 0o777 == 0o600
    assert WORD not in played.printed + str(played.tasks)
