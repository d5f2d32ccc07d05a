"""How long engines will load, and what would make it shorter."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.weights.loading import elsewhere, forecast, host_advice, host_bytes, to_load

GB = 10**9
CONTENTS = {
    "bytes": 1000 * GB,
    "layers": {str(number): 100 * GB for number in range(9)},
    "others": 100 * GB,
    "count": 8,
}


def engine(tensor: int, pipeline: int, hosts: int, **more: Any) -> dict[str, Any]:
    """Return a planned engine whose ranks are dealt evenly to its hosts, in order."""
    ranks = tensor * pipeline * int(more.get("data", 1))
    names = [f"h{number + 1}" for number in range(hosts)]
    return {
        "name": "r1",
        "layout": {"tensor": tensor, "pipeline": pipeline, "data": more.pop("data", 1)},
        "hosts": names,
        "ranks": [
            {"rank": number, "host": names[number * hosts // ranks], "device": number}
            for number in range(ranks)
        ],
        "arguments": [],
        "environment": {},
        **more,
    }


def look(kind: str = "nfs4", way: str = "ahead", **more: Any) -> dict[str, Any]:
    """Return what a host found: 1 GB/s, of which nothing is in memory."""
    storage = {
        "kind": kind,
        "network": kind not in ("ext4", "xfs", "tmpfs"),
        "point": "/srv",
        "place": "/srv/r1",
        "memory_available": 2000 * GB,
        "local_free": 0,
        "local_kind": "xfs",
        "read_ahead_kib": 128,
        **more.pop("storage", {}),
    }
    return {
        "storage": storage,
        "contents": CONTENTS,
        "cached": 0.0,
        "way": way,
        "rate": {"bytes_per_second": GB},
        "why": "",
        **more,
    }


@pytest.mark.parametrize(
    ("planned", "way", "gigabytes"),
    [
        # One host has all ranks: each byte is read once, whoever reads it.
        (engine(8, 1, 1), "mapped", 1000),
        (engine(8, 1, 1), "ahead", 1000),
        # Ranks of two hosts split each tensor, and its pages lie under both.
        (engine(16, 1, 2), "mapped", 1000),
        # Four layers and an end; the last stage holds what guesses ahead.
        (engine(8, 2, 2), "mapped", 500),
        # And half of the files, of which half is that stage's anyway.
        (engine(8, 2, 2), "ahead", 750),
        (engine(8, 2, 2), "whole", 1000),
        (engine(8, 2, 2), "nothing", 0),
        (engine(1, 2, 2, environment={"VLLM_PP_LAYER_PARTITION": "2,6"}), "mapped", 300),
        # A partition that fits no model is for the plan to refuse.
        (engine(1, 2, 2, environment={"VLLM_PP_LAYER_PARTITION": "2,2"}), "mapped", 1000),
        # Each data rank holds all.
        (engine(2, 1, 2, data=2), "mapped", 1000),
    ],
)
def test_a_host_reads_its_stages_and_its_share_ahead(
    planned: dict[str, Any], way: str, gigabytes: int
) -> None:
    assert host_bytes(planned, "h1", CONTENTS, way) == gigabytes * GB


def test_the_last_stage_holds_the_layers_beyond_the_last() -> None:
    assert host_bytes(engine(8, 2, 2), "h2", CONTENTS, "mapped") == 600 * GB
    assert host_bytes(engine(1, 4, 4), "h2", CONTENTS, "mapped") == 200 * GB


def test_of_files_that_tell_no_layers_all_is_read() -> None:
    unknown = {**CONTENTS, "layers": {}}
    assert host_bytes(engine(1, 4, 4), "h2", unknown, "mapped") == 1000 * GB


def test_the_slowest_host_is_named_with_bytes_rate_and_time() -> None:
    slow = look(rate={"bytes_per_second": GB // 2})
    found = forecast(engine(8, 2, 2), {"h1": look(), "h2": slow})
    assert found["seconds"] == 1600
    assert found["hosts"]["h1"]["seconds"] == 750
    assert found["line"] == (
        "r1: the slowest of 2 hosts, h2, reads at most 800.0 GB from nfs4 at 500.0 MB/s as "
        "measured, so loading takes about 26 m 40 s"
    )


def test_what_is_in_memory_is_not_read_again() -> None:
    found = forecast(engine(8, 1, 1), {"h1": look(cached=0.75)})
    assert found["seconds"] == 250
    assert forecast(engine(8, 1, 1), {"h1": look(cached=1.0, rate={})})["seconds"] == 0


def test_nothing_is_said_of_what_nobody_waits_for() -> None:
    fast = look("xfs", "mapped", rate={"bytes_per_second": 200 * GB})
    found = forecast(engine(8, 1, 1), {"h1": fast})
    assert (found["seconds"], found["line"]) == (5, "")
    small = {"bytes": 260 << 20, "layers": {}, "others": 0, "count": 0}
    unknown = look("ext4", "mapped", contents=small, rate={}, why="it was not measured before")
    assert forecast(engine(1, 1, 1), {"h1": unknown})["line"] == ""


def test_a_host_of_which_nothing_is_known_is_named_with_the_reason() -> None:
    refused = {"why": "[Errno 13] Permission denied: '/srv/r1'"}
    found = forecast(engine(8, 2, 2), {"h1": look(), "h2": refused})
    assert found["seconds"] is None
    assert found["line"] == (
        "r1: h2 reads its weights, for how long is not known: "
        "[Errno 13] Permission denied: '/srv/r1'"
    )
    streamer = look(way="unknown", why="it is loaded by a program whose reads are not known here")
    line = forecast(engine(8, 1, 1), {"h1": streamer})["line"]
    assert line.startswith(
        "r1: h1 reads at most 1.0 TB from nfs4, for how long is not known: it is"
    )
    assert "h2" in forecast(engine(8, 2, 2), {"h1": look()})["line"]


@pytest.mark.parametrize("kind", ["xfs", "ext4", "tmpfs"])
def test_for_a_disk_of_its_own_vllm_s_own_way_stays(kind: str) -> None:
    assert host_advice([], look(kind, "mapped")) == []


def test_where_vllm_reads_ahead_by_itself_nothing_is_advised() -> None:
    assert host_advice([], look("nfs4", "ahead")) == []


def test_reading_ahead_is_advised_where_vllm_does_not_know_that_others_share() -> None:
    (told,) = host_advice([], look("wekafs", "mapped"), "0.32.0")
    assert told.endswith("not on wekafs: vllm_args: {safetensors_load_strategy: prefetch}")
    # Not where somebody has chosen, nor for a release whose source was not read.
    assert host_advice(["--safetensors-load-strategy", "lazy"], look("wekafs", "mapped")) == []
    assert host_advice(["--load-format=auto"], look("wekafs", "mapped")) == []
    assert host_advice([], look("wekafs", "mapped"), "0.19.1") == []
    assert len(host_advice([], look("wekafs", "mapped"), "unknown")) == 1


def test_a_model_that_does_not_fit_into_memory_is_said_to_be_read_as_it_is_needed() -> None:
    storage = {"memory_available": 900 * GB, "local_free": 3000 * GB}
    told = host_advice([], look("nfs4", "mapped", storage=storage))
    assert [one.partition(":")[0] for one in told] == [
        "1.0 TB are more than 90% of the 900.0 GB of free memory, so vLLM does not read ahead",
        "the local disk (xfs, 3.0 TB free) has room for a copy",
        "the kernel reads 128 KiB ahead at /srv",
    ]


def test_advice_is_given_once_for_all_hosts_and_only_where_it_is_worth_it() -> None:
    slow = look("wekafs", "mapped")
    line = forecast(engine(8, 2, 2), {"h1": slow, "h2": slow})["line"]
    assert line.count("prefetch") == 1
    fast = look("wekafs", "mapped", rate={"bytes_per_second": 20 * GB})
    assert forecast(engine(8, 2, 2), {"h1": fast, "h2": fast})["advice"] == []
    assert "lfs getstripe -c /srv/r1" in forecast(engine(8, 1, 1), {"h1": look("lustre")})["line"]


def test_engines_that_start_here_and_have_their_model_are_looked_at() -> None:
    planned = {**engine(8, 2, 2), "arguments": ["--x"]}
    models = {"r1": {"path": "/srv/r1", "fingerprint": "f"}}

    def listed(host: str, action: str, found: Any = models) -> list[dict[str, Any]]:
        return to_load([planned], host, found, {"r1": {"action": action}})

    wanted = {"name": "r1", "path": "/srv/r1", "fingerprint": "f", "arguments": ["--x"], "ranks": 8}
    assert listed("h1", "start") == listed("h2", "restart") == [wanted]
    assert listed("h1", "none") == listed("h3", "start") == listed("h1", "start", {}) == []


def test_the_longest_of_the_other_hosts_is_waited_for() -> None:
    found = {"r1": forecast(engine(8, 2, 2), {"h1": look(), "h2": look()})}
    assert elsewhere(found, "r1", "h1") == 800
    assert elsewhere(found, "r1", "h2") == 750
    assert elsewhere(found, "other", "h1") == 0
