"""The role enflame_driver as it is played, in each state that a host's driver can be found in."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from .conftest import Machine

JUDGED = "enflame_driver : Judge the driver"
MARK = "/var/lib/vllm-ansible/enflame_driver.json"


def installed(machine: Machine, version: str = "1.7.2.14") -> None:
    """Bring a driver as an administrator would have."""
    machine.sh(
        f"sed s/1.7.2.14/{version}/ /srv/emulated-enflame/driver.run > /srv/old.run;"
        "sh /srv/old.run --no-auto-load --peermem -y; modprobe enflame"
    )


def test_a_missing_driver_is_found_installed_once_and_left_alone(machine: Machine) -> None:
    assert machine.missed() == ["driver-missing"]

    said = machine.play(check=True, **machine.manage)
    assert not said["failed"] and said["changed"], said["failure"].get("msg")
    assert (
        "modprobe enflame" in said["tasks"]["enflame_driver : Report what would be repaired"]["msg"]
    )
    assert machine.missed() == ["driver-missing"]

    done = machine.play(**machine.manage)
    assert not done["failed"] and done["changed"], done["failure"]
    assert done["tasks"][JUDGED]["evidence"]["values"]["answering"] == 8
    assert machine.sh("cat /sys/module/enflame/version").strip() == "1.7.2.14"
    assert machine.sh("ls /var/lib/vllm-ansible") == ""

    again = machine.play(**machine.manage)
    assert (again["failed"], again["changed"]) == (False, 0)
    assert "8 device(s) answer" in again["tasks"][JUDGED]["evidence"]["summary"]
    assert machine.play()["failed"] is False


def test_an_older_driver_is_unloaded_and_replaced(machine: Machine) -> None:
    installed(machine, "1.6.3.12")
    assert machine.missed(enflame_driver_version="1.7.2.14") == ["older"]
    assert machine.missed() == []
    done = machine.play(**machine.manage)
    assert not done["failed"], done["failure"]
    assert machine.sh("cat /sys/module/enflame/version").strip() == "1.7.2.14"


def test_what_died_half_way_is_seen_and_done_again(machine: Machine) -> None:
    machine.sh("touch /srv/emulated-enflame/die")
    died = machine.play(**machine.manage)["failure"]
    assert died["found"] == "killed half way" and died["expected"] and died["where"] and died["fix"]
    assert machine.sh(f"cat {MARK}")
    assert machine.missed() == ["half-installed"]
    assert not machine.play(**machine.manage)["failed"]
    assert machine.missed() == []


@pytest.mark.parametrize(
    ("before", "said", "words"),
    [
        ("exec 9</dev/gcu0; sleep 300 >/dev/null & exec 9<&-", {}, "sleep ("),
        ("touch /srv/emulated-enflame/stuck", {}, "is in use"),
        ("true", {"enflame_driver_sha256": "00"}, "not the file whose checksum was given"),
        ("rmdir /lib/modules/*/build", {}, "no headers of the kernel"),
        ("true", {"enflame_driver_file": "/nowhere/TopsPlatform_1.run"}, "not on the controller"),
        ("true", {"enflame_driver_version": "1.9.9"}, "the installer brought driver 1.7.2.14"),
    ],
    ids=["in use", "stuck", "wrong checksum", "wrong kernel", "no file", "other version"],
)
def test_what_must_not_be_done_is_one_error_and_the_old_driver_stays(
    machine: Machine, before: str, said: dict[str, Any], words: str
) -> None:
    installed(machine, "1.6.3.12")
    machine.sh(f"touch /dev/gcu0; {before}")
    played = machine.play(**{**machine.manage, **said})
    failure = played["failure"]
    assert words in failure["msg"], failure
    for part in ("expected", "found", "where", "fix"):
        assert failure[part], part
    if "enflame_driver_version" not in said:
        assert machine.sh("cat /sys/module/enflame/version").strip() == "1.6.3.12"
        assert machine.sh("ls /var/lib/vllm-ansible 2>/dev/null || true").count("json") == 0


def test_without_root_an_administrator_is_told_what_to_run(machine: Machine) -> None:
    failure = machine.play(privileges="none", **machine.manage)["failure"]
    assert "as root on n1: bash ./TopsPlatform_1.4.6_deb_amd64.run" in failure["fix"]
    assert machine.play(enflame_driver_mode="skip")["changed"] == 0


def test_silent_devices_are_reset_when_a_person_asks_and_nobody_uses_them(machine: Machine) -> None:
    installed(machine)
    machine.sh("echo '{\"devices\": [{}]}' > /srv/emulated-enflame/state.json; touch /dev/gcu0")
    managed = machine.play(**machine.manage)["failure"]
    assert [one["what"].rpartition("(")[2] for one in managed["missed"]] == ["silent)"]
    assert "playbooks/reset_devices.yml --limit n1" in managed["fix"]

    reset = "playbooks/reset_devices.yml"
    asked = machine.play(reset)["failure"]
    assert (asked["expected"], asked["found"]) == ("reset", "no")
    machine.sh("exec 9</dev/gcu0; sleep 300 >/dev/null & echo $! > /srv/holder; exec 9<&-")
    used = machine.play(reset, reset_devices_answer="reset")["failure"]
    assert "sleep (" in used["found"]
    assert machine.sh("ls /srv/emulated-enflame/resets 2>/dev/null || true") == ""

    machine.sh('kill "$(cat /srv/holder)"')
    machine.sh("echo 3 > /sys/module/enflame/refcnt")
    unseen = machine.play(reset, reset_devices_answer="reset")["failure"]
    assert "reference(s) held by a process not visible from here" in unseen["found"]
    assert machine.sh("ls /srv/emulated-enflame/resets 2>/dev/null || true") == ""
    machine.sh("echo 0 > /sys/module/enflame/refcnt")
    checked = machine.play(reset, check=True, reset_devices_answer="reset")
    assert not checked["failed"] and checked["changed"]
    assert machine.sh("ls /srv/emulated-enflame/resets 2>/dev/null || true") == ""
    machine.sh("cd /srv/emulated-enflame; mv efsmt kept; echo 'echo broken >&2; exit 3' > efsmt")
    machine.sh("cd /srv/emulated-enflame; sed -i '1i #!/bin/sh' efsmt; chmod +x efsmt")
    failed = machine.play(reset, reset_devices_answer="reset")["failure"]
    assert failed["found"] == "broken" and "efsmt" in failed["where"] and failed["fix"]
    machine.sh("mv /srv/emulated-enflame/kept /srv/emulated-enflame/efsmt")
    done = machine.play(reset, reset_devices_answer="reset")
    assert not done["failed"] and done["changed"], done["failure"]
    assert machine.play(**machine.manage)["failed"] is False


def test_install_says_that_no_environment_is_locked_for_these_devices(machine: Machine) -> None:
    failure = machine.play("install.yml")["failure"]
    assert (failure["found"], failure["where"]) == ("enflame", "n1")
    assert "engine_source to image" in failure["fix"] and "cpu or nvidia" in failure["expected"]


def one_card_down(machine: Machine) -> None:
    """Let device 3 be on the bus alone."""
    installed(machine)
    state = json.dumps({"devices": [{"index": number} for number in range(8) if number != 3]})
    machine.sh(f"echo '{state}' > /srv/emulated-enflame/state.json")


def test_what_a_driver_lacks_is_said_by_its_role_where_the_stage_is_played(
    machine: Machine,
) -> None:
    # In check mode: what comes before the driver would change the machine around this one.
    said = {"accelerator": "enflame", "accelerator_count": 8}
    prepare = partial(machine.play, "playbooks/prepare.yml", check=True, cluster_dir="/srv/c")
    fresh = prepare(**said)
    assert list(fresh["tasks"])[-1] == JUDGED
    assert fresh["failure"]["missed"][0]["what"].endswith("(driver-missing)"), fresh["failure"]
    assert fresh["failure"]["found"] == "none, and 8 device(s) on the bus"

    one_card_down(machine)
    down = prepare(**said)
    assert list(down["tasks"])[-1] == JUDGED
    (missed,) = down["failure"]["missed"]
    assert missed["what"] == "every device answers (silent)"
    assert missed["found"] == "7 that efsmi lists, 1 silent"
    assert "set accelerator_count: 7 for n1" in missed["fix"]


def test_who_judges_no_driver_is_told_by_the_site_and_a_card_less_can_be_declared(
    machine: Machine,
) -> None:
    one_card_down(machine)
    prepare = partial(machine.play, "playbooks/prepare.yml", check=True, cluster_dir="/srv/c")
    skipped = prepare(accelerator_count=8, enflame_driver_mode="skip")
    assert JUDGED not in skipped["tasks"]
    assert "7 usable enflame accelerators; 1 of 8 on the PCI bus" in skipped["failure"]["msg"]

    without = prepare(accelerator_count=7)
    judged = without["tasks"][JUDGED]
    assert "7 device(s) answer and 1 on the bus not" in judged["evidence"]["summary"]
    kept = without["tasks"]["site : Keep what each host is"]["ansible_facts"]["site_host"]
    assert kept["accelerator_indices"] == [0, 1, 2, 4, 5, 6, 7]
