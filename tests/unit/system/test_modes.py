"""What is done about a concern follows from its mode, the privileges, and whether it matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.system import told
from vllm_ansible.system.judge import modes, to_look_at, to_manage
from vllm_ansible.system.wants import CONCERNS, Wants, mode_of, wants

Judged = Callable[..., Any]
AUTO = dict.fromkeys(CONCERNS, "auto")


@pytest.mark.parametrize(
    ("concern", "asked", "root", "mode"),
    [
        ("limits", "auto", True, "manage"),
        ("limits", "auto", False, "check"),
        ("limits", "check", True, "check"),
        ("limits", "manage", False, "manage"),
        ("efa", "auto", True, "check"),
        ("efa", "manage", True, "manage"),
        ("time", "skip", True, "skip"),
        ("firewall", "auto", True, "check"),
        ("firewall", "manage", True, "manage"),
        ("container_runtime", "auto", True, "skip"),
        ("container_runtime", "check", False, "check"),
    ],
)
def test_auto_manages_with_root_what_is_not_risky(
    concern: str, asked: str, root: bool, mode: str
) -> None:
    assert mode_of(concern, asked, root) == mode


def test_a_developers_machine_is_not_even_looked_at(want: Wants) -> None:
    alone = replace(want, root=False, accelerator="cpu", accelerator_count=1, peers={})
    assert to_look_at(AUTO, alone) == []
    assert all(one["why"] for one in modes(AUTO, alone).values())


def test_a_cluster_without_cards_is_asked_for_what_several_hosts_need(want: Wants) -> None:
    plain = replace(want, accelerator="cpu")
    assert to_look_at(AUTO, plain) == ["limits", "hosts_file", "time", "network", "firewall"]
    without_root = replace(plain, root=False)
    assert to_look_at(AUTO, without_root) == ["limits", "hosts_file", "time", "network"]


def test_one_host_with_cards_has_no_peers_to_reach(want: Wants) -> None:
    assert to_look_at(AUTO, replace(want, peers={})) == ["limits", "hugepages", "network"]


def test_a_skipped_concern_is_not_looked_at_and_says_so(want: Wants) -> None:
    found = modes({**AUTO, "limits": "skip"}, want)
    assert found["limits"] == {"mode": "skip", "why": "skipped by its mode"}


def test_only_root_mends_and_only_what_is_managed(judged: Judged, look: dict[str, Any]) -> None:
    look["hosts_file"]["addresses"] = ["127.0.1.1"]
    look["network"]["verbs"] = False
    found = judged(look, hosts_file="check")
    assert to_manage(found, root=True) == ["network"]
    assert to_manage(found, root=False) == []


def test_the_wants_of_a_host_are_read_from_the_facts_of_its_site() -> None:
    facts = {
        "name": "one",
        "privileges": "root",
        "pid1": "systemd",
        "accelerator": "cpu",
        "accelerator_count": 1,
        "address": "10.0.0.1",
        "interface": "eth1",
        "distribution": "rocky",
    }
    given = {
        **{"cluster": "demo", "first_port": "20000", "mtu": 0, "container_engine": "podman"},
        **{"efa_installer": "", "efa_installer_sha256": "AB"},
    }
    found = wants(facts, [facts, {**facts, "name": "two", "address": "10.0.0.2"}], given)
    assert found.peers == {"two": "10.0.0.2"}
    assert (found.first_port, found.red_hat, found.several_hosts) == (20000, True, True)
    assert found.efa_installer.sha256 == "ab"


def test_the_gate_names_what_is_left_and_how_to_mend_it(
    judged: Judged, look: dict[str, Any]
) -> None:
    look["hosts_file"]["addresses"] = ["127.0.1.1"]
    look["limits"]["login"]["nofile"] = [1024, 1048576]
    found = judged(look, hosts_file="check")
    missed = [
        one
        for one in told.measurements(found, "one", True, "/runs/1/it.sh", False)
        if not one["ok"]
    ]
    assert [one["what"] for one in missed] == ["the host's own name one"]
    assert missed[0]["where"] == "one (system_hosts_file: check)"
    assert "ssh one sudo sh < /runs/1/it.sh" in missed[0]["fix"]
    assert "system_hosts_file: manage" in missed[0]["fix"]
    assert told.summary(found, "one").endswith("2 recommended change(s)")


def test_check_mode_does_not_miss_what_a_real_run_would_mend(
    judged: Judged, look: dict[str, Any]
) -> None:
    look["hosts_file"]["addresses"] = ["127.0.1.1"]
    assert all(
        one["ok"] for one in told.measurements(judged(look), "one", True, "", check_mode=True)
    )
    assert not all(
        one["ok"] for one in told.measurements(judged(look), "one", True, "", check_mode=False)
    )


def test_evidence_says_of_every_concern_what_was_done_about_it(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    found = judged(look, replace(want, peers={}), container_runtime="skip")
    values = told.values(found)
    assert set(values) == set(CONCERNS)
    assert values["time"]["why"] == "one host takes part"
    assert told.summary(found, "one") == (
        "one: limits, network managed; hugepages not judged: no EFA device; efa, hosts file, time, "
        "firewall not judged: one host takes part; container runtime not judged: "
        "skipped by its mode"
    )
