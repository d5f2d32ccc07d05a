"""What a host mounts, from where, and with which files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_ansible.nfs_cache import files
from vllm_ansible.nfs_cache.plan import plan

from .given import GIVEN

HOSTS = [
    {"name": name, "address": f"10.0.0.{number}", "privileges": "root", "distribution": "debian"}
    for number, name in enumerate(("head", "w1", "w2"), 1)
]
LOOK: dict[str, Any] = {
    "nfs": "",
    "nfsd": "",
    "cache": "",
    "mount": None,
    "fstab": None,
    "programs": {"mount.nfs": False, "exportfs": False, "cachefilesd": False},
}
THEIRS = {"source": "fs.example:/vol", "kind": "nfs4", "options": "vers=4.1,hard,proto=tcp"}


def planned(
    look: dict[str, Any] | None = None, host: int = 1, distribution: str = "debian", **said: str
) -> dict[str, Any]:
    me = {**HOSTS[host], "distribution": distribution}
    return plan({**LOOK, **(look or {})}, me, HOSTS, {**GIVEN, **said})


def test_a_client_mounts_the_server_at_its_data_plane() -> None:
    found = planned()
    assert found["source"] == "10.0.0.1:/srv/shared"
    assert found["options"] == "vers=4.2,hard,noatime,fsc,_netdev,nofail"
    assert (found["serves"], found["caches"], found["manages"]) == (False, True, True)
    assert found["packages"] == ["cachefilesd", "nfs-common"]
    assert planned(distribution="rocky")["packages"] == ["cachefilesd", "nfs-utils"]


def test_the_server_has_no_cache_and_says_no_reason() -> None:
    found = planned(host=0)
    assert (found["serves"], found["caches"], found["why_not"]) == (True, False, "")
    assert found["packages"] == ["nfs-kernel-server"]


def test_an_export_outside_needs_no_server() -> None:
    assert planned(export="nas:/a", server="")["source"] == "nas:/a"


def test_a_providers_mount_keeps_its_source_and_its_options() -> None:
    found = planned({"mount": THEIRS, "fstab": THEIRS}, server="")
    assert found["source"] == "fs.example:/vol"
    assert found["options"] == "vers=4.1,hard,proto=tcp,fsc,_netdev,nofail"
    assert found["kind"] == "nfs4"
    assert planned({"mount": THEIRS}, server="gone")["source"] == "fs.example:/vol"
    assert planned(server="")["source"] == ""


def test_what_was_planned_once_is_planned_again() -> None:
    line = {"source": "10.0.0.1:/srv/shared", "kind": "nfs", "options": planned()["options"]}
    assert planned({"fstab": line}) == planned()


@pytest.mark.parametrize(
    ("look", "said", "why"),
    [
        ({"cache": "no module"}, {}, "no module"),
        ({}, {"directory": ""}, "nfs_cache_directory is empty: none is wanted"),
        (
            {"mount": {**THEIRS, "kind": "virtiofs"}},
            {},
            "/srv/shared is a mount of virtiofs, which this cache is not for",
        ),
    ],
)
def test_without_a_cache_it_is_mounted_without_fsc(
    look: dict[str, Any], said: dict[str, str], why: str
) -> None:
    found = planned({**look, "fstab": {**THEIRS, "options": "hard,fsc"}}, **said)
    assert (found["caches"], found["why_not"]) == (False, why)
    assert found["options"] == "hard,_netdev,nofail"
    assert "cachefilesd" not in found["packages"]


def test_a_mount_of_another_kind_is_left_as_it_is() -> None:
    other = {**THEIRS, "kind": "virtiofs"}
    assert not planned({"mount": other}, server="")["manages"]
    assert not planned({"fstab": other}, server="")["manages"]


def test_nothing_is_managed_without_root_or_when_it_is_only_checked() -> None:
    assert not planned(mode="check")["manages"]
    me = {**HOSTS[1], "privileges": "none"}
    for mode in ("auto", "manage"):
        assert not plan(LOOK, me, HOSTS, {**GIVEN, "mode": mode})["manages"]


def test_the_configuration_holds_limits_and_a_tag_of_its_own() -> None:
    text = files.cachefilesd_conf("/var/cache/fscache", {"bstop": "2"}, selinux=False)
    tag = files.tag_of(text)
    assert text == (
        f"{files.HEADER}tag {tag}\ndir /var/cache/fscache\n"
        "brun 10%\nbcull 7%\nbstop 2%\nfrun 10%\nfcull 7%\nfstop 3%\n"
    )
    assert tag.startswith("vllm-")
    assert len(tag) < 16, "a table of the kernel shows 15 characters"
    labelled = files.cachefilesd_conf("/var/cache/fscache", {"bstop": 2}, selinux=True)
    assert labelled.endswith("secctx system_u:system_r:cachefiles_kernel_t:s0\n")
    assert files.tag_of(labelled) != tag, "another configuration is another cache to the kernel"
    assert files.tag_of("") == ""


@given(st.tuples(*[st.integers(-5, 105)] * 3))
def test_limits_are_refused_unless_they_are_in_order(shares: tuple[int, int, int]) -> None:
    stop, cull, run = shares
    faults = files.limits_faults(files.all_limits({"bstop": stop, "bcull": cull, "brun": run}))
    assert (faults == []) == (0 <= stop < cull < run < 100)


def taken(text: str) -> dict[str, int]:
    """Take limits line by line, as fs/cachefiles/daemon.c of Linux does."""
    now = {"brun": 7, "bcull": 5, "bstop": 1, "frun": 7, "fcull": 5, "fstop": 1}
    for name, share in (line.split() for line in text.splitlines() if line.endswith("%")):
        now[name] = int(share.rstrip("%"))
        assert now[f"{name[0]}stop"] < now[f"{name[0]}cull"] < now[f"{name[0]}run"] < 100, text
    return now


@given(st.lists(st.integers(0, 99), min_size=3, max_size=3, unique=True).map(sorted))
def test_the_kernel_takes_every_line_of_limits_that_are_in_order(shares: list[int]) -> None:
    stop, cull, run = shares
    limits = {"bstop": stop, "bcull": cull, "brun": run}
    text = files.cachefilesd_conf("/var/cache/fscache", limits, selinux=False)
    assert taken(text) == files.all_limits(limits)


def test_exports_are_for_the_peers_on_the_data_plane_alone() -> None:
    assert files.exports("/srv/shared", "head", HOSTS, no_root_squash=False) == (
        f"{files.HEADER}/srv/shared 10.0.0.2(rw,sync,no_subtree_check,root_squash) "
        "10.0.0.3(rw,sync,no_subtree_check,root_squash)\n"
    )
    assert "no_root_squash" in files.exports("/srv/shared", "head", HOSTS, no_root_squash=True)
    # A path alone would be exported to everybody (exports(5)).
    assert files.exports("/srv/shared", "head", HOSTS[:1], no_root_squash=False) == files.HEADER
