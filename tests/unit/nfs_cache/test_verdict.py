"""What stops a run before a host is touched, and what the proof of a cache is worth."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.nfs_cache import files, verdict

from .given import GIVEN

GIB, MIB = 1 << 30, 1 << 20
HOST = {"name": "w1"}
ROOM = {
    "directory": "/var/cache/fscache",
    "disk": "/",
    "kind": "ext4",
    "network": False,
    "size": 100 * GIB,
    "free": 50 * GIB,
    "attributes": "",
    "used": False,
}
PLACE = {"real": "/srv/shared", "there": True, "entries": [], "away": ""}
LOOK: dict[str, Any] = {
    "nfs": "",
    "nfsd": "",
    "mount": None,
    "place": PLACE,
    "bound": [],
    "users": ["7 vllm serve"],
    "room": ROOM,
    "selinux": False,
    "apparmor": "",
}
PLAN = {
    "serves": False,
    "manages": True,
    "caches": True,
    "why_not": "",
    "source": "10.0.0.1:/srv/shared",
}
# As it was measured in a virtual machine: 16 MiB, Linux 6.1.
FIRST = {"seconds": 3.03, "server_bytes": 16 * MIB, "memory_bytes": 0, "cache_reads": 4096}
SECOND = {"seconds": 1.51, "server_bytes": 0, "memory_bytes": 0, "cache_reads": 4096}
PROOF = {"bytes": 16 * MIB, "fsc": True, "reads": [FIRST, SECOND]}


def missed(
    look: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    **said: Any,
) -> dict[str, dict[str, Any]]:
    rows = verdict.before(
        {**LOOK, **(look or {})}, {**PLAN, **(plan or {})}, HOST, {**GIVEN, **said}
    )
    return {row["what"]: row for row in rows if not row["ok"]}


def test_a_host_that_can_all_of_it_passes() -> None:
    assert missed() == {}
    here = {"point": "/srv/shared", "kind": "nfs4", "source": "10.0.0.1:/srv/shared/"}
    assert missed({"mount": here}) == {}
    assert missed({"mount": here}, {"manages": False}) == {}


def test_a_disk_without_room_is_refused_with_its_numbers() -> None:
    (row,) = missed({"room": {**ROOM, "free": 14 * GIB}}).values()
    assert row["expected"] == "8 GiB above the 7 % that stay free (bcull)"
    assert row["found"] == "7.0 GiB: 14.0 GiB free of 100.0 GiB at /"
    assert row["where"] == "w1:/var/cache/fscache"
    # A cache that is there has taken the room that it needs.
    assert missed({"room": {**ROOM, "free": 7 * GIB, "used": True}}) == {}


@pytest.mark.parametrize(
    ("look", "what", "found"),
    [
        (
            {"room": {**ROOM, "kind": "tmpfs", "attributes": "Operation not supported"}},
            "the cache's file system",
            "tmpfs at /: Operation not supported",
        ),
        (
            {"room": {**ROOM, "kind": "nfs4", "network": True}},
            "the cache's file system",
            "nfs4 at /",
        ),
        (
            {"room": {**ROOM, "directory": "/data/cache"}, "selinux": True},
            "the label that SELinux asks for",
            "/data/cache, which the policy does not know",
        ),
        ({"nfs": "no module nfs"}, "NFS in the kernel", "no module nfs"),
        (
            {"mount": {"point": "/srv/shared", "kind": "nfs4", "source": "other:/x"}},
            "what is mounted",
            "other:/x",
        ),
        (
            {"place": {**PLACE, "real": "/data/shared", "entries": ["weights"]}},
            "the path",
            "/srv/shared is /data/shared",
        ),
        (
            {"place": {**PLACE, "entries": list("abcdef")}},
            "files that a mount would hide",
            "a, b, c, d, e, ...",
        ),
        ({"place": {**PLACE, "away": "no answer"}}, "the server", "no answer"),
        # Its engines would go on without a cache.
        ({"bound": ["mycache"]}, "who uses the mount", "7 vllm serve"),
    ],
)
def test_what_would_not_do_is_refused_before_a_host_is_touched(
    look: dict[str, Any], what: str, found: str
) -> None:
    assert {name: row["found"] for name, row in missed(look).items()} == {what: found}


def test_a_cache_is_replaced_where_nobody_uses_the_mount() -> None:
    assert missed({"bound": ["mycache"], "users": []}) == {}
    tag = files.tag_of(files.cachefilesd_conf("/var/cache/fscache", {}, False))
    assert missed({"bound": [tag]}) == {}


def test_a_server_hides_nothing_of_its_own() -> None:
    look = {"place": {**PLACE, "entries": ["weights"]}}
    assert missed(look, {"serves": True, "caches": False}) == {}
    found = missed(look, {"manages": False})
    assert "files that a mount would hide" not in found


def test_a_cache_within_what_it_caches_is_refused() -> None:
    found = missed(directory="/srv/shared/cache")
    assert found["where the cache is"]["found"] == "/srv/shared/cache"
    assert missed(directory="/srv/shared-cache") == {}


def test_limits_out_of_order_are_refused() -> None:
    assert missed(limits={"bcull": 12})["limits of the cache"]["found"] == (
        "bstop 3, bcull 12, brun 10"
    )


def test_who_may_not_mount_needs_a_mount_that_is_there() -> None:
    (row,) = missed(plan={"manages": False}).values()
    assert (row["what"], row["found"]) == ("what is mounted", "nothing")


def test_a_directory_comes_from_one_place() -> None:
    what = "where the directory comes from"
    assert missed(plan={"source": ""}, server="")[what]["found"] == "none"
    assert missed(export="nas:/a")[what]["found"] == "nas:/a and head"
    assert missed(export="nas:/a", server="") == {}


def judged(proof: dict[str, Any], **plan: Any) -> dict[str, str]:
    rows = verdict.after(LOOK, {**PLAN, **plan}, proof, HOST)
    return {row["what"]: row["found"] for row in rows if not row["ok"]}


def test_a_cache_that_caches_passes_and_is_told() -> None:
    assert judged(PROOF) == {}
    assert verdict.summary(PLAN, PROOF, HOST, "/srv/shared") == (
        "w1 has /srv/shared from 10.0.0.1:/srv/shared, cached; 16.0 MiB read in 3.03 s, then in "
        "1.51 s, 16.0 MiB and then 0.0 MiB of it from the server"
    )


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ({"server_bytes": 2 * MIB}, "2.0 MiB from the server, 0.0 MiB in memory before"),
        ({"server_bytes": None}, "an unknown number of MiB from the server"),
        ({"memory_bytes": 16 * MIB}, "0.0 MiB from the server, 16.0 MiB in memory before"),
    ],
)
def test_a_second_read_from_elsewhere_fails(last: dict[str, Any], found: str) -> None:
    missing = judged({**PROOF, "reads": [FIRST, {**SECOND, **last}]})
    assert missing["a second read from the cache"].startswith(found)


def test_a_column_that_says_no_fails() -> None:
    assert judged({**PROOF, "fsc": False}) == {"the column FSC": "no"}


def test_a_kernel_without_a_cache_is_said_and_stops_only_whom_it_was_asked_to() -> None:
    without = {"caches": False, "why_not": "the kernel was built without CONFIG_FSCACHE"}
    proof = {**PROOF, "fsc": False, "reads": [FIRST, FIRST]}
    assert judged(proof, **without) == {}
    told = verdict.summary({**PLAN, **without}, proof, HOST, "/srv/shared")
    assert "no cache: the kernel was built without CONFIG_FSCACHE; 16.0 MiB read in" in told
    assert missed(plan=without) == {}
    (row,) = missed(plan=without, required=True).values()
    assert row["found"] == "no cache: the kernel was built without CONFIG_FSCACHE"


def test_a_server_has_nothing_to_prove() -> None:
    assert verdict.after(LOOK, {**PLAN, "serves": True, "caches": False}, {}, HOST) == []
    assert missed(plan={"serves": True, "caches": False}, required=True) == {}
    assert verdict.summary({**PLAN, "serves": True}, {}, HOST, "/s") == "w1 serves /s"
