"""What a failed run says of machines that are paid for."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import pytest

from vllm_ansible.provision.fleet import Machine
from vllm_ansible.provision.ledger import FILE, Ledger
from vllm_ansible.record.rented import doors, named, so_far, tunnel, ways_out
from vllm_ansible.slurm.endpoint import login

ONE = Machine("a", 0, "active", "gpu_1x_gh200", "us-east-3", 149, "l", 0.0)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let time stand still: what was paid so far is told to the cent."""
    moment = time.time()
    monkeypatch.setattr(time, "time", lambda: moment)
    return moment


def test_the_price_and_both_ways_out_are_told(tmp_path: Path, now: float) -> None:
    Ledger(tmp_path / "r1" / FILE).see([ONE], now - 3600)
    lines = ways_out("r1", ["inventories/lambda"], failed=True, state=tmp_path)
    assert lines == [
        " costs      $1.49/h for 1 rented machine, $1.49 so far",
        " continue   the same command again",
        " or end     ansible-playbook playbooks/teardown.yml -i inventories/lambda",
    ]
    assert ways_out("r1", ["inventories/lambda"], failed=False, state=tmp_path) == [
        lines[0],
        " end        ansible-playbook playbooks/teardown.yml -i inventories/lambda",
    ]


def test_the_machine_that_a_failure_is_about_can_be_replaced_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    Ledger(tmp_path / "r1" / FILE).see([ONE], time.time())
    about = ["r1-1", "r1-11"]
    told = ways_out("r1", ["inventories/lambda"], failed=True, named=about, state=tmp_path)
    command = "playbooks/replace.yml -i inventories/lambda -e replace_hosts=r1-1,r1-11; continue"
    assert told[2] == f" or replace ansible-playbook {command}"
    well = ways_out("r1", [], failed=False, named=about, state=tmp_path)
    assert not [one for one in well if "replace" in one]


def test_hosts_are_read_from_where_a_failure_is() -> None:
    known = ["r1-0", "r1-1", "r1-11", "r1-2"]
    assert named("verify", ["r1-11, r1-2"], known) == ["r1-11", "r1-2"]
    assert named("verify", ["r1-1 <-> r1-2"], known) == ["r1-1", "r1-2"]
    assert named("prepare", ["r1-1 (id)", ""], known) == ["r1-1"]
    # All of them, or none: the fault is no machine's own.
    assert named("verify", ["all hosts"], known) == []
    assert named("verify", known, known) == []
    assert named("serve", ["r1-1"], known) == []


def test_a_stage_says_what_was_paid_so_far_and_what_comes_next(tmp_path: Path, now: float) -> None:
    Ledger(tmp_path / "r1" / FILE).see([ONE], now - 7200)
    assert so_far("r1", "prepare", tmp_path) == ["$2.98 so far at $1.49/h; next: prepare"]


def test_without_machines_that_are_paid_for_nothing_is_said(tmp_path: Path) -> None:
    assert so_far("r1", "prepare", tmp_path) == []
    assert ways_out("r1", [], failed=True, state=tmp_path) == []
    assert ways_out(None, [], failed=True, state=tmp_path) == []
    ledger = Ledger(tmp_path / "r1" / FILE)
    ledger.see([ONE], time.time())
    ledger.see([], time.time())
    assert ways_out("r1", [], failed=True, state=tmp_path) == []


def test_a_damaged_ledger_hides_no_failure(tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / FILE).write_text("{")
    assert ways_out("r1", [], failed=True, state=tmp_path) == []


MINE = {
    "inventory_hostname": "r1-0",
    "cluster_name": "r1",
    "provision_provider": "lambda",
    "ansible_user": "ubuntu",
    "ansible_host": "198.51.100.1",
    "ansible_ssh_common_args": "-o 'UserKnownHostsFile=\"/a b/known_hosts\"'",
    "ansible_ssh_private_key_file": "{{ my_key }}",
}
SERVED = {"engines": [{"name": "chat", "endpoint": "http://10.0.0.1:8000/v1"}]}
# Each listens on the loopback address of its engine's first host.
WITH_RAY = {
    "engines": [
        {**SERVED["engines"][0], "dashboard": {"host": "r1-0", "port": 20001}},
        {
            "name": "other",
            "endpoint": "http://10.0.0.2:8001/v1",
            "dashboard": {"host": "r1-1", "port": 20101},
        },
    ]
}


def test_each_data_rank_is_a_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    ranks = [
        {"rank": rank, "endpoint": f"http://10.0.0.{rank + 1}:{20020 + rank}/v1"} for rank in (0, 1)
    ]
    _, *rest = tunnel(MINE, doors({"engines": [{**SERVED["engines"][0], "ranks": ranks}]}))
    words = shlex.split(" ".join(rest))
    assert words[-5:-1] == ["-L", "20020:10.0.0.1:20020", "-L", "20021:10.0.0.2:20021"]


def test_the_way_in_is_a_command_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    first, *rest = tunnel(MINE, doors(SERVED))
    assert first.startswith(" reach      http://127.0.0.1:8000/v1 on your own machine")
    words = shlex.split(" ".join(rest))
    assert words == [
        *("ssh", "-N", "-o", 'UserKnownHostsFile="/a b/known_hosts"'),
        *("-L", "8000:10.0.0.1:8000", "ubuntu@198.51.100.1"),
    ]


def test_a_port_of_ssh_that_is_another_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    _, *rest = tunnel({**MINE, "ansible_port": 22001}, doors(SERVED))
    words = shlex.split(" ".join(rest))
    assert words[-5:] == ["-p", "22001", "-L", "8000:10.0.0.1:8000", "ubuntu@198.51.100.1"]


def test_the_dashboard_of_the_first_host_is_let_in_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    told = " ".join(" ".join(tunnel(MINE, doors(WITH_RAY))).split())
    assert "Ray's dashboard of chat at http://127.0.0.1:20001, http://127.0.0.1:8001/v1 on" in told
    assert "-L 20001:127.0.0.1:20001 -L 8001:10.0.0.2:8001" in told
    assert "20101" not in told
    assert told.endswith("the dashboard asks for the token in state/r1/ray_token")


def test_the_load_test_page_is_let_in_by_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    page = doors({"page": "https://10.0.0.1:8443/", "engines": ["chat"]})
    told = " ".join(" ".join(tunnel(MINE, doors(SERVED) + page)).split())
    assert "the load-test page at https://localhost:8443/ on your own machine" in told
    assert "-L 8000:10.0.0.1:8000 -L 8443:10.0.0.1:8443 ubuntu@" in told
    assert doors({"page": "", "engines": ["chat"]}) == []


def test_machines_that_are_not_rented_have_their_own_ways_in() -> None:
    assert tunnel({"ansible_host": "10.0.0.1"}, doors(SERVED)) == []
    assert tunnel(MINE, doors({"engines": "none"})) == []


def test_nodes_of_slurm_are_reached_by_way_of_the_login_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    mine = {**MINE, "provision_provider": "slurm", "ansible_host": "gpu01"}
    told = " ".join(" ".join(tunnel(mine, doors(WITH_RAY))).split())
    # No node's own loopback is reached from there.
    assert f"ssh -N -L 8000:10.0.0.1:8000 -L 8001:10.0.0.2:8001 {login()}" in told
    assert "dashboard" not in told
