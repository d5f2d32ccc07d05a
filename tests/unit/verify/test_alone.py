"""The stage `verify` where no other stage runs before it: its checks know the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.stubbed_roles import ROOT, lay_out, play, stage

pytestmark = pytest.mark.plays

SAID = {
    "ansible.builtin.debug": {
        "msg": "CHECKED {{ inventory_hostname }} {{ (environment_installed | default({})).directory"
        " | default('without an environment') }}"
    }
}
FOUND = {"ansible.builtin.set_fact": {"environment_installed": {"directory": "/srv/environment"}}}
NOTHING: list[dict[str, Any]] = [
    {"ansible.builtin.set_fact": {"verification_measures": False, "verification_links": {}}}
]
ROLES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "site": stage({}),
    "environment": {"look": [FOUND]},
    "preflight": {"main": [SAID]},
    "verification": {"look": NOTHING},
}


@pytest.mark.parametrize("tag", ["verify", "repair"])
def test_checks_know_the_environment_of_each_host(tmp_path: Path, tag: str) -> None:
    plays = yaml.safe_load((ROOT / "playbooks/verify.yml").read_text())
    after_site = plays[1]["tasks"][1]["name"]
    hosts, variables = ["n1", "n2"], {"verify_accept": []}
    lay_out(tmp_path, "verify", after_site, ROLES, hosts, variables)
    done = play(tmp_path, "verify", f"--tags={tag}")
    assert done.returncode == 0, done.stdout + done.stderr
    for host in hosts:
        assert f"CHECKED {host} /srv/environment" in done.stdout
