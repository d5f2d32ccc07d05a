"""What a failed run says of machines that are paid for."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from vllm_ansible.provision.fleet import Machine
from vllm_ansible.provision.ledger import FILE, Ledger
from vllm_ansible.record.rented import endpoints, tunnel, ways_out

ONE = Machine("a", 0, "active", "gpu_1x_gh200", "us-east-3", 149, "l", 0.0)


def test_the_price_and_both_ways_out_are_told(tmp_path: Path) -> None:
    now = time.time()
    Ledger(tmp_path / "r1" / FILE).see([ONE], now - 3600)
    lines = ways_out("r1", ["inventories/lambda"], tmp_path)
    assert lines == [
        " costs      $1.49/h for 1 rented machine, $1.49 so far",
        " go on      the same command again",
        " or end     ansible-playbook playbooks/teardown.yml -i inventories/lambda",
    ]


def test_without_machines_that_are_paid_for_nothing_is_said(tmp_path: Path) -> None:
    assert ways_out("r1", [], tmp_path) == []
    assert ways_out(None, [], tmp_path) == []
    ledger = Ledger(tmp_path / "r1" / FILE)
    ledger.see([ONE], time.time())
    ledger.see([], time.time())
    assert ways_out("r1", [], tmp_path) == []


def test_a_damaged_ledger_hides_no_failure(tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / FILE).write_text("{")
    assert ways_out("r1", [], tmp_path) == []


MINE = {
    "provision_provider": "lambda",
    "ansible_user": "ubuntu",
    "ansible_host": "198.51.100.1",
    "ansible_ssh_common_args": "-o 'UserKnownHostsFile=\"/a b/known_hosts\"'",
    "ansible_ssh_private_key_file": "{{ my_key }}",
}
SERVED = {"engines": [{"name": "chat", "endpoint": "http://10.0.0.1:8000/v1"}]}


def test_the_way_in_is_a_command_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    first, *rest = tunnel(MINE, endpoints(SERVED))
    assert first.startswith(" reach      http://127.0.0.1:8000/v1 on your own machine")
    words = shlex.split(" ".join(rest))
    assert words == [
        *("ssh", "-N", "-o", 'UserKnownHostsFile="/a b/known_hosts"'),
        *("-L", "8000:10.0.0.1:8000", "ubuntu@198.51.100.1"),
    ]


def test_machines_that_are_not_rented_have_their_own_ways_in() -> None:
    assert tunnel({"ansible_host": "10.0.0.1"}, endpoints(SERVED)) == []
    assert tunnel(MINE, endpoints({"engines": "none"})) == []
