"""Limits are asked for where cards need them, and never beyond what root may set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vllm_ansible.provision.giver import giver
from vllm_ansible.system.wants import Wants

Judged = Callable[..., Any]
SMALL = 8 << 20


def files(found: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["text"] for file in found["limits"]["repair"]["files"]}


def test_the_files_say_what_is_wanted(judged: Judged, look: dict[str, Any]) -> None:
    look["limits"]["login"]["memlock"] = [SMALL, SMALL]
    found = files(judged(look))
    logins = found["/etc/security/limits.d/90-vllm-ansible.conf"]
    # The asterisk does not mean root.
    for who in ("*", "root"):
        assert f"{who} - nofile 1048576\n" in logins
        assert f"{who} - memlock unlimited\n" in logins
    units = found["/etc/systemd/system.conf.d/90-vllm-ansible.conf"]
    assert "[Manager]\nDefaultLimitNOFILE=1048576\nDefaultLimitMEMLOCK=infinity\n" in units


def test_no_login_is_given_what_cannot_be_set(
    judged: Judged, want: Wants, look: dict[str, Any]
) -> None:
    """pam_limits refuses a login whose limits cannot be set: that would lock everybody out."""
    look["container"] = True
    look["limits"] = {
        "login": {"nofile": [1024, 20000], "memlock": [SMALL, SMALL]},
        "units": {},
        "settable": {"nofile": 20000, "memlock": SMALL},
    }
    found = judged(look)
    logins = files(found)["/etc/security/limits.d/90-vllm-ansible.conf"]
    assert "root - nofile 20000\n" in logins
    assert "root - memlock 8192\n" in logins, "in KiB"
    (memlock,) = [one for one in found["limits"]["differences"] if one["needed"]]
    assert memlock["what"] == "locked memory that root may set"
    assert "--cap-add SYS_RESOURCE" in memlock["fix"]
    assert "20000, and it cannot be raised" in found["limits"]["notes"][0]
    of_a_cloud = judged(look, replace(want, limits=giver("runpod").limits))["limits"]
    (memlock,) = [one for one in of_a_cloud["differences"] if one["needed"]]
    assert "its API has no field for it" in memlock["fix"]


def test_what_units_have_is_never_lowered(judged: Judged, look: dict[str, Any]) -> None:
    look["limits"] = {
        "login": {"nofile": [1024, 4096], "memlock": [SMALL, SMALL]},
        "units": {"nofile": [1024, 524288], "memlock": [-1, -1]},
        "settable": {"nofile": 4096, "memlock": SMALL},
    }
    found = files(judged(look))["/etc/systemd/system.conf.d/90-vllm-ansible.conf"]
    assert "DefaultLimitNOFILE=524288\nDefaultLimitMEMLOCK=infinity\n" in found


def test_what_cannot_be_had_is_not_asked_for(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    look["container"], look["devices"] = True, []
    look["limits"]["login"]["nofile"] = look["limits"]["units"]["nofile"] = [20000, 20000]
    look["limits"]["settable"]["nofile"] = 20000
    assert not judged(look, replace(want, accelerator="cpu"))["limits"]["differences"]


@pytest.mark.parametrize(
    ("accelerator", "count", "devices", "locks"),
    [("cpu", 1, False, False), ("cpu", 1, True, True), ("nvidia", 1, False, False),
     ("nvidia", 1, True, True), ("nvidia", 2, False, True)],
)  # fmt: skip
def test_memory_is_locked_for_rdma_and_between_cards(
    judged: Judged,
    look: dict[str, Any],
    want: Wants,
    accelerator: str,
    count: int,
    devices: bool,
    locks: bool,
) -> None:
    look["limits"]["login"]["memlock"] = [SMALL, SMALL]
    look["devices"] = look["devices"] if devices else []
    host = replace(want, accelerator=accelerator, accelerator_count=count)
    assert bool(judged(look, host)["limits"]["differences"]) is locks


def test_without_systemd_only_logins_are_written(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    look["limits"]["login"]["memlock"], look["limits"]["units"] = [SMALL, SMALL], {}
    found = judged(look, want)
    assert list(files(found)) == ["/etc/security/limits.d/90-vllm-ansible.conf"]
    assert not found["limits"]["repair"]["commands"]
