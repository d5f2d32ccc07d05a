"""The program that fetches from the hub, with the real huggingface_hub, against the emulator."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from ...emulators.hub import CHUNK, Hub, Repository
from .conftest import MODEL, ROOT, SHARD, SHARDS, Program, hold
from .program import PROGRAM

TOTAL = 4 * SHARD + 5400
BLOCK = 2**20  # what the program may hold in memory of each file
Same = Callable[[], bool]


@pytest.fixture
def repository(tree: Path) -> Repository:
    return Repository(tree)


@pytest.fixture
def hub(repository: Repository, program: Program) -> Iterator[Hub]:
    tokens = {"hf_ann": "ann", "hf_bob": "bob"}
    with Hub({MODEL: repository}, tokens) as hub:
        program.url = hub.url
        yield hub


@pytest.fixture
def request_all(hub: Hub, program: Program, repository: Repository) -> dict[str, Any]:
    """Return the request for all files, without asking the hub for them."""
    commit = repository.names["main"]
    names = ["config.json", "tokenizer/vocab.txt", "empty.txt", *SHARDS]
    stored = repository.commits[commit]
    files = [{"name": name, "bytes": stored[name].size} for name in names]
    return program.fetching({"revision": commit, "files": files})


def test_the_role_sends_each_file_of_the_program() -> None:
    variables = yaml.safe_load((ROOT / "roles/weights/vars/main.yml").read_text())
    sent = variables["weights_scripts"]["hub"]
    assert set(sent) == set(PROGRAM)
    assert all(f"'/files/hub/{name}'" in text for name, text in sent.items())


def test_the_manifest_has_names_sizes_and_hashes(hub: Hub, program: Program, tree: Path) -> None:
    found = program.manifest().result
    by_name = {one["name"]: one for one in found["files"]}
    assert set(by_name) == {"config.json", "tokenizer/vocab.txt", "empty.txt", *SHARDS}
    for name, one in by_name.items():
        assert one["bytes"] == (tree / name).stat().st_size
        listed = subprocess.run(["sha256sum", tree / name], capture_output=True, text=True)
        assert one["sha256"] == (listed.stdout.split()[0] if name in SHARDS else None)
    git = subprocess.run(
        ["git", "hash-object", tree / "config.json"], capture_output=True, text=True
    )
    assert by_name["config.json"]["git"] == git.stdout.strip()
    assert len(found["revision"]) == 40


def test_patterns_include_and_exclude(hub: Hub, program: Program) -> None:
    found = program.manifest(include=["*.bin", "*.json", "*.txt"], exclude=["tokenizer/*"]).result
    names = [one["name"] for one in found["files"]]
    assert names == ["config.json", "empty.txt", "pytorch_model.bin"]
    sentence, details = program.manifest(include=["*.gguf"]).failure
    assert sentence == f"{MODEL} has no file that is wanted"
    assert "config.json" in details["found"]


def test_everything_arrives_once(
    hub: Hub, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    ran = program.run(request_all)
    assert ran.result == {"revision": request_all["revision"], "files": 7, "bytes": TOTAL}
    assert same()
    assert sorted(ran.said("file")) == sorted(request_all["files"])
    assert ran.said("progress")[-1] == [TOTAL, TOTAL, "bytes", "downloading"]
    again = program.run(request_all)
    assert again.said("file") == request_all["files"]
    assert sum(hub.sent.values()) == TOTAL


def test_files_come_in_the_wanted_order_and_progress_grows(
    hub: Hub, program: Program, request_all: dict[str, Any]
) -> None:
    order = [SHARDS[2], "config.json", SHARDS[0]]
    hub.throttle(1.5 * SHARD)
    ran = program.run({**request_all, "files": order, "workers": 1})
    assert ran.said("file") == order
    done = [said[0] for said in ran.said("progress")]
    assert done == sorted(done)
    assert 0 < done[0] < done[-1] == 2 * SHARD + 400


@pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
def test_what_a_killed_run_has_is_not_fetched_again(
    hub: Hub, program: Program, request_all: dict[str, Any], same: Same, part: float
) -> None:
    hub.throttle(2 * SHARD)
    with program.start(request_all) as process:
        while sum(hub.sent.values()) < part * TOTAL:
            assert process.poll() is None
            time.sleep(0.002)
        hold(hub.line, hub.port, hub.content_port)
        process.kill()
        process.wait()
        said = process.stdout.read() if process.stdout else ""
    hub.throttle(0)
    whole = [name for name in SHARDS if f'"file": "{name}"' in said]
    program.run(request_all).result  # noqa: B018  raises where it did not end well
    assert same()
    for name in SHARDS:
        # What was on its way when the program was killed is lost, with what it had not written.
        lost = hub.sent[name] - SHARD
        assert lost == 0 if name in whole else 0 <= lost <= BLOCK + 8 * CHUNK, (name, lost)


def test_a_cut_connection_goes_on_where_it_was(
    hub: Hub, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    hub.cut(SHARDS[0], after=SHARD // 3)
    hub.cut(SHARDS[1], after=SHARD // 2)
    hub.truncate(SHARDS[2], to=1000)
    assert program.run(request_all).result
    assert same()
    assert all(hub.sent[name] == SHARD for name in SHARDS)
    ranges = [asked.range for asked in hub.asked if asked.side == "content" and asked.range]
    assert f"bytes={SHARD // 3}-" in ranges
    assert "bytes=1000-" in ranges


def test_a_stalled_file_is_asked_for_again(
    hub: Hub, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    hub.stall(SHARDS[0], after=SHARD // 2, seconds=240)
    assert program.run({**request_all, "stall_seconds": 0.5}).result
    # It did not wait for the end of the stall.
    assert any(asked.path.endswith(SHARDS[0]) and asked.range for asked in hub.asked)
    assert same()
    assert hub.sent[SHARDS[0]] == SHARD


def test_what_does_not_come_over_xet_comes_over_plain_https(
    hub: Hub,
    program: Program,
    repository: Repository,
    request_all: dict[str, Any],
    same: Same,
) -> None:
    repository.xet = "stall"
    # Longer than a loaded machine takes to start the library, which has to ask before it is ended.
    ran = program.run({**request_all, "stall_seconds": 16})
    assert ran.result
    assert same()
    assert "plain HTTPS" in ran.said("progress")[-1][3]
    assert any("xet-read-token" in asked.path for asked in hub.asked)
    # Tried once by each worker, and by no other file.
    assert sum("xet-read-token" in asked.path for asked in hub.asked) <= 2
    assert not (program.out / ".cache/xet").exists()


def test_what_the_library_brought_is_kept(
    hub: Hub,
    program: Program,
    repository: Repository,
    request_all: dict[str, Any],
    tree: Path,
) -> None:
    repository.xet = "stall"
    with program.start({**request_all, "files": SHARDS[:1]}) as process:
        while not any(asked.status == 302 for asked in hub.asked):
            time.sleep(0.001)
        repository.xet = ""  # before the process for xet asks: it takes the ordinary way
        said, _ = process.communicate()
    assert f'"file": "{SHARDS[0]}"' in said
    assert "plain HTTPS" not in said
    assert (program.out / SHARDS[0]).read_bytes() == (tree / SHARDS[0]).read_bytes()
    assert hub.sent[SHARDS[0]] == SHARD
    asked = [one.method for one in hub.asked if one.path.endswith(SHARDS[0])]
    assert asked == ["HEAD", "HEAD"]  # the second is the library's, which then goes where it points


def test_a_download_over_xet_ends_with_the_program(
    hub: Hub, program: Program, repository: Repository, request_all: dict[str, Any]
) -> None:
    repository.xet = "stall"
    with program.start({**request_all, "stall_seconds": 60, "workers": 1}) as process:
        while not any(asked.path.startswith("/cas") for asked in hub.asked):
            assert process.poll() is None
            time.sleep(0.01)
        children = []
        for path in Path(f"/proc/{process.pid}/task").glob("*/children"):
            with suppress(OSError):  # of a thread that has just ended
                children += path.read_text().split()
        process.kill()
    assert children
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_ends_with_the_input_of_who_asked(
    hub: Hub, program: Program, request_all: dict[str, Any]
) -> None:
    hub.stall(SHARDS[0], after=BLOCK, seconds=60)
    request = {**request_all, "stall_seconds": 60, "ends_with_input": True}
    with program.start(request, stdin=subprocess.PIPE) as process:
        while not hub.sent[SHARDS[0]]:
            assert process.poll() is None
            time.sleep(0.01)
        assert process.stdin
        process.stdin.close()
        assert process.wait(50) == 1


def pauses(hub: Hub, status: int) -> list[float]:
    """Return how many seconds after each refusal the next request came."""
    asked = [one for one in hub.asked if one.side == "hub" and "agent" not in one.path]
    return [after.at - one.at for one, after in pairwise(asked) if one.status == status]


def test_a_busy_hub_is_left_alone_for_as_long_as_it_asks(
    hub: Hub, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    hub.refuse(429, times=1, path="/resolve/", Retry_After="2")
    hub.refuse(429, times=1, path="/resolve/", RateLimit='"resolvers";r=0;t=1')
    ran = program.run({**request_all, "workers": 1})
    assert ran.result
    assert same()
    first, second = pauses(hub, 429)
    # As long as it asks, and no shorter; how much longer is the machine's business.
    assert first >= 2
    assert second >= 1
    assert any("asks to wait" in said[3] for said in ran.said("progress"))


def test_a_hub_that_stays_busy_is_given_up(
    hub: Hub, program: Program, request_all: dict[str, Any]
) -> None:
    hub.refuse(429, times=99, Retry_After="1")
    sentence, details = program.run({**request_all, "attempts": 2}).failure
    assert sentence == "the hub takes no more requests for now"
    assert details["found"] == "429, asking to wait 1 s"
    assert details["where"].startswith(hub.url)


def test_a_hub_that_gets_well_is_asked_again(hub: Hub, program: Program) -> None:
    hub.refuse(503, times=2, path="/api/models")
    assert program.manifest().result
    first, second = pauses(hub, 503)
    # Each wait of its own is twice the one before.
    assert first >= 0.5
    assert second >= 1
    hub.refuse(500, times=9, path="/api/models")
    sentence, details = program.manifest(attempts=2).failure
    assert (sentence, details["found"]) == ("the hub is not well", "500")


def test_a_token_that_is_revoked_midway_is_named_and_nothing_is_lost(
    hub: Hub,
    program: Program,
    repository: Repository,
    request_all: dict[str, Any],
    same: Same,
) -> None:
    repository.private, repository.readers = True, frozenset({"ann", "bob"})
    program.token("hf_ann")
    hub.revoke("hf_ann", after=SHARD)
    sentence, details = program.run({**request_all, "workers": 1}).failure
    assert sentence == "the hub refused the token"
    assert details["where"] == str(program.directory / "token")
    program.token("hf_bob")
    assert program.run(request_all).result
    assert same()
    assert sum(hub.sent.values()) == TOTAL
    assert {asked.token for asked in hub.asked if asked.side == "content"} == {""}


def test_a_gated_model_is_refused_before_anything_is_fetched(
    hub: Hub, program: Program, repository: Repository, request_all: dict[str, Any]
) -> None:
    repository.gated, repository.readers = True, frozenset({"ann"})
    sentence, details = program.manifest().failure
    assert sentence == f"{MODEL} is gated, and access was not granted"
    assert details["found"] == "no token"
    program.token("hf_bob")
    for ran in (program.manifest(), program.run(request_all)):
        sentence, details = ran.failure
        assert sentence == f"{MODEL} is gated, and access was not granted"
        assert details["found"] == f"the token in {program.directory / 'token'}, which was not"
        assert "hf_bob" not in ran.printed


def test_what_the_hub_does_not_have_is_named(hub: Hub, program: Program) -> None:
    sentence, details = program.manifest(revision="v9").failure
    assert (sentence, details["found"]) == (f"{MODEL} has no revision v9", "v9")
    sentence, details = program.manifest(model="org/other").failure
    assert sentence == "the hub has no org/other that this host may read"
    assert details["found"] == "401 with no token"
    program.token("hf_ann")
    assert program.manifest(model="org/other").failure[1]["found"] == "404 with a token"
    assert program.manifest(model="a/b/c").failure[0] == "a/b/c is no name of a model"
    program.token("hf_wrong")
    assert program.manifest().failure[0] == "the hub refused the token"


def test_an_unreachable_hub_is_named_with_its_proxy_and_no_password(program: Program) -> None:
    program.url = "http://127.0.0.1:9"
    sentence, details = program.manifest().failure
    assert sentence == f"{MODEL} cannot be downloaded: the connection to the hub fails"
    assert details["where"] == "http://127.0.0.1:9, without a proxy"
    program.url = "http://hub.invalid"
    program.variables["http_proxy"] = "http://ann:secret@127.0.0.1:9"
    ran = program.manifest()
    assert ran.failure[1]["where"] == "http://hub.invalid, through the proxy http://127.0.0.1:9"
    assert "secret" not in ran.printed
    program.variables["HF_HUB_OFFLINE"] = "1"
    assert program.manifest().failure[0] == f"{MODEL} cannot be downloaded offline"


def test_what_does_not_fit_is_refused_before_it_begins(
    hub: Hub, program: Program, request_all: dict[str, Any]
) -> None:
    huge = {**request_all["bytes"], SHARDS[0]: 2**60}
    sentence, details = program.run({**request_all, "bytes": huge}).failure
    assert sentence == f"{MODEL} does not fit on the disk"
    assert "1073741824.01 GiB free" in details["expected"]
    assert details["found"].endswith(" GiB free")
    assert not hub.sent


def test_another_size_than_was_listed_is_refused(
    hub: Hub, program: Program, request_all: dict[str, Any]
) -> None:
    sizes = {**request_all["bytes"], SHARDS[0]: SHARD + 1}
    request = {**request_all, "files": SHARDS[:1], "bytes": sizes}
    sentence, details = program.run(request).failure
    assert sentence == f"{SHARDS[0]} came back with another size"
    assert details["found"] == f"{SHARD} bytes"
    hub.truncate(SHARDS[1], to=1000, times=math.inf)
    sentence, details = program.run({**request_all, "files": [SHARDS[1]], "attempts": 2}).failure
    assert sentence == f"{SHARDS[1]} came back with another size"
    assert details["found"] == "1000 bytes"


def test_a_file_of_another_revision_is_replaced(
    program: Program, tree: Path, tmp_path: Path
) -> None:
    for number in (1, 2):
        (tmp_path / f"v{number}").mkdir()
        (tmp_path / f"v{number}/a.safetensors").write_text(f"version {number}")
        (tmp_path / f"v{number}/b.safetensors").write_text("the same")
    with Hub({MODEL: Repository(tmp_path / "v1", {"v2": tmp_path / "v2"})}) as hub:
        program.url = hub.url
        for revision in ("main", "v2"):
            found = program.manifest(revision=revision).result
            assert program.run(program.fetching(found)).result
        assert (program.out / "a.safetensors").read_text() == "version 2"
        assert hub.sent == {"a.safetensors": 18, "b.safetensors": 8}


@pytest.fixture
def small_disk(program: Program) -> Iterator[Callable[[str], None]]:
    """Let the program download to a file system of its own."""
    program.out.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", program.out]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("a small file system needs a root that may mount")

    yield mount
    subprocess.run(["umount", program.out], capture_output=True)


def test_too_few_inodes_are_named(
    hub: Hub, program: Program, request_all: dict[str, Any], small_disk: Callable[[str], None]
) -> None:
    small_disk("size=64m,nr_inodes=20")
    sentence, details = program.run(request_all).failure
    assert sentence == f"{MODEL} has more files than the file system can take"
    assert details["found"] == "19 inodes and 0.06 GiB free"


def test_a_disk_that_fills_up_midway_is_named_and_freed_it_goes_on(
    hub: Hub,
    program: Program,
    request_all: dict[str, Any],
    same: Same,
    small_disk: Callable[[str], None],
) -> None:
    small_disk("size=14m")
    hub.throttle(4 * SHARD)
    with program.start(request_all) as process:
        while sum(hub.sent.values()) < SHARD:
            time.sleep(0.01)
        (program.out / "other").write_bytes(bytes(5 * 2**20))
        said, _ = process.communicate()
    assert f"the disk was full before {MODEL} was whole" in said
    hub.throttle(0)
    (program.out / "other").unlink()
    assert program.run(request_all).result
    assert same()
    assert sum(hub.sent.values()) <= TOTAL + 2 * (BLOCK + 8 * CHUNK)
