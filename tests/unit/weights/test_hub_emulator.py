"""The hub's emulator answers the real huggingface_hub as the hub does, faults included."""

from __future__ import annotations

import http.client
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils._xet import refresh_xet_connection_info

from ...emulators import hub as emulator
from ...emulators.hub import Hub, Repository
from .conftest import MODEL, ROOT, SHARD, SHARDS

TOKENS = {"hf_ann": "ann", "hf_bob": "bob"}
LARGE = SHARDS[0]


@pytest.fixture
def hub(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    anns = frozenset({"ann"})
    models = {
        MODEL: Repository(tree),
        "org/gated": Repository(tree, gated=True, readers=anns),
        "org/private": Repository(tree, private=True, readers=anns),
        "org/xet": Repository(tree, xet="refuse"),
    }
    with Hub(models, TOKENS) as hub:
        yield hub


def commit(hub: Hub) -> str:
    return hub.repositories[MODEL].names["main"]


def metadata(hub: Hub, name: str, model: str = MODEL, token: str | bool = False) -> Any:
    url = hf_hub_url(model, name, revision=commit(hub), endpoint=hub.url)
    return get_hf_file_metadata(url, token=token, endpoint=hub.url)


def ask(address: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send one request that no library had a hand in."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=120)
    connection.request(method, f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, found, answer.read()


def test_the_library_reads_sizes_and_hashes(hub: Hub, tree: Path) -> None:
    info = HfApi(hub.url, token=False).model_info(MODEL, files_metadata=True)
    assert info.sha == commit(hub)
    siblings = {one.rfilename: one for one in info.siblings or []}
    assert set(siblings) == {
        str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()
    }
    large = siblings[LARGE]
    assert large.lfs is not None
    assert (large.size, large.lfs.size) == (SHARD, SHARD)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{large.lfs.sha256}\n"
    pointer += f"size {SHARD}\n"
    assert large.lfs.pointer_size == len(pointer)
    made = subprocess.run(
        ["git", "hash-object", "--stdin"], input=pointer, capture_output=True, text=True
    )
    assert large.blob_id == made.stdout.strip()
    assert siblings["config.json"].lfs is None
    plain = HfApi(hub.url, token=False).model_info(MODEL)
    assert {one.size for one in plain.siblings or []} == {None}


def test_a_snapshot_is_the_tree(hub: Hub, tree: Path, tmp_path: Path) -> None:
    HfApi(hub.url, token=False).snapshot_download(MODEL, local_dir=tmp_path)
    for path in tree.rglob("*"):
        if path.is_file():
            assert (tmp_path / path.relative_to(tree)).read_bytes() == path.read_bytes()
            name = str(path.relative_to(tree))
            assert hub.sent[name] == path.stat().st_size
    assert {asked.side for asked in hub.asked if asked.sent == SHARD} == {"content"}


def test_a_tree_comes_in_pages(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "PAGE", 3)
    api = HfApi(hub.url, token=False)
    deep = [one.path for one in api.list_repo_tree(MODEL, recursive=True)]
    assert len(deep) == len(set(deep)) == 12
    assert {"tokenizer", "tokenizer/vocab.txt"} <= set(deep)
    flat = [one.path for one in api.list_repo_tree(MODEL)]
    assert "tokenizer" in flat
    assert "tokenizer/vocab.txt" not in flat
    assert [one.path for one in api.list_repo_tree(MODEL, "tokenizer")] == ["tokenizer/vocab.txt"]
    assert sum("cursor=" in asked.path for asked in hub.asked) > 2


def test_metadata_of_small_and_large_files(hub: Hub) -> None:
    small = metadata(hub, "config.json")
    assert (small.commit_hash, small.size) == (commit(hub), 400)
    large = metadata(hub, LARGE)
    assert (large.commit_hash, large.size) == (commit(hub), SHARD)
    assert len(large.etag) == 64
    assert urlsplit(large.location).port == hub.content_port
    assert large.xet_file_data is None
    xet = metadata(hub, LARGE, "org/xet").xet_file_data
    assert xet.file_hash == large.etag
    found = refresh_xet_connection_info(file_data=xet, headers={})
    assert urlsplit(found.endpoint).port == 9


def test_parts_of_a_file(hub: Hub, tree: Path) -> None:
    where, content = metadata(hub, LARGE).location, (tree / LARGE).read_bytes()
    status, headers, body = ask(where, Range="bytes=1000-1999")
    assert (status, headers["content-range"]) == (206, f"bytes 1000-1999/{SHARD}")
    assert body == content[1000:2000]
    assert ask(where, Range=f"bytes={SHARD - 5}-")[2] == content[-5:]
    assert ask(where, Range="bytes=-7")[2] == content[-7:]
    status, headers, _ = ask(where, Range=f"bytes={SHARD}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{SHARD}")
    status, headers, body = ask(where, "HEAD")
    assert (status, headers["content-length"], body) == (200, str(SHARD), b"")


def test_the_content_side_takes_signed_addresses_and_no_token(hub: Hub) -> None:
    where = metadata(hub, LARGE).location
    assert ask(where, Authorization="Bearer hf_ann")[0] == 400
    assert ask(where[:-1] + "x")[0] == 403


@pytest.mark.parametrize(
    ("model", "name", "revision", "token", "error", "status"),
    [
        ("org/none", "config.json", "main", False, RepositoryNotFoundError, 401),
        ("org/none", "config.json", "main", "hf_ann", RepositoryNotFoundError, 404),
        ("org/private", "config.json", "main", False, RepositoryNotFoundError, 401),
        ("org/private", "config.json", "main", "hf_bob", RepositoryNotFoundError, 404),
        ("org/gated", "config.json", "main", False, GatedRepoError, 401),
        ("org/gated", "config.json", "main", "hf_bob", GatedRepoError, 403),
        (MODEL, "config.json", "v9", False, RevisionNotFoundError, 404),
        (MODEL, "none.json", "main", False, EntryNotFoundError, 404),
        (MODEL, "config.json", "main", "hf_wrong", HfHubHTTPError, 401),
    ],
)
def test_what_the_hub_refuses(
    hub: Hub, model: str, name: str, revision: str, token: Any, error: type, status: int
) -> None:
    url = hf_hub_url(model, name, revision=revision, endpoint=hub.url)
    with pytest.raises(error) as refused:
        get_hf_file_metadata(url, token=token)
    assert refused.value.response.status_code == status
    assert type(refused.value) is error or error is EntryNotFoundError


def test_who_may_read_reads(hub: Hub) -> None:
    for model in ("org/gated", "org/private"):
        assert metadata(hub, LARGE, model, "hf_ann").size == SHARD
    assert HfApi(hub.url, token=False).model_info("org/gated").gated == "auto"
    hub.revoke("hf_ann")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        metadata(hub, LARGE, "org/gated", "hf_ann")


def test_faults_happen_as_often_as_asked(hub: Hub, tree: Path) -> None:
    where, content = metadata(hub, LARGE).location, (tree / LARGE).read_bytes()
    hub.flip(LARGE, offset=100_000)
    wrong = ask(where)[2]
    different = [at for at, pair in enumerate(zip(wrong, content, strict=True)) if len({*pair}) > 1]
    assert different == [100_000]
    assert wrong[100_000] ^ content[100_000] == 1
    assert ask(where)[2] == content
    hub.flip(LARGE, offset=5, times=math.inf)
    assert ask(where, Range="bytes=5-5")[2] == ask(where, Range="bytes=5-5")[2] != content[5:6]
    hub.cut(LARGE, after=70_000)
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(where)
    assert len(cut.value.partial) == 70_000
    hub.stall(LARGE, after=70_000, seconds=0.3)
    begun = time.monotonic()
    assert len(ask(where)[2]) == SHARD
    assert time.monotonic() - begun >= 0.3
    hub.truncate(LARGE, to=10)
    assert len(ask(where)[2]) == 10
    hub.refuse(429, times=1, Retry_After="7", RateLimit='"api";r=0;t=7')
    status, headers, _ = ask(f"{hub.url}/api/models/{MODEL}")
    assert (status, headers["retry-after"], headers["ratelimit"]) == (429, "7", '"api";r=0;t=7')
    assert ask(f"{hub.url}/api/models/{MODEL}")[0] == 200


def test_the_rate_is_that_of_all_connections(hub: Hub) -> None:
    places = [metadata(hub, name).location for name in SHARDS[:2]]
    hub.throttle(3 * SHARD)
    begun = time.monotonic()
    threads = [threading.Thread(target=ask, args=(where,)) for where in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Two at the whole rate each would take half of it.
    assert time.monotonic() - begun >= 0.6


def test_it_runs_alone_with_the_standard_library(tree: Path) -> None:
    program = (ROOT / "tests/emulators/hub.py").read_text()
    command = [sys.executable, "-I", "-S", "-", str(tree), "--model", "some/model", "--rate", "1e9"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(program)
        process.stdin.close()
        url = process.stdout.readline().strip()
        _, _, body = ask(f"{url}/api/models/some/model?blobs=true")
        process.terminate()
    sizes = {one["rfilename"]: one["size"] for one in json.loads(body)["siblings"]}
    assert sizes[LARGE] == SHARD
