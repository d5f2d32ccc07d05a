"""What is decided of an image's tar in a real play, of what hosts and the controller have."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

CONTENT = b"as docker save writes it"
PLACE = {"path": "/c/images", "device": 1, "free_bytes": 1 << 20, "there_bytes": 0}
ROOM = {"tar": PLACE, "storage": PLACE, "received": PLACE}
LACKS = {"loaded": False, "tar_bytes": 0, "room_bytes": 0}
NAMED = {"looks": "__environment_look", "rooms": "__environment_room"}


def spread(name: str, file: str, digest: str) -> dict[str, Any]:
    return {
        "name": name,
        "image_spread": {"file": file, "sha256": digest, "slug": "image-1", **NAMED},
        "run_once": True,
    }


@pytest.fixture(scope="module")
def played(shared_play: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    tar: Path = tmp_path_factory.mktemp("controller") / "engine.tar"
    tar.write_bytes(CONTENT)
    right, wrong = sha256(CONTENT).hexdigest(), "0" * 64
    full = {**ROOM, "tar": {**PLACE, "free_bytes": 3}, "storage": {**PLACE, "free_bytes": 3}}
    own = {"__environment_look": LACKS, "__environment_room": ROOM}
    done = {"__environment_look": {**LACKS, "loaded": True}, "__environment_room": {}}
    seen = {"lacks": own, "full": {**own, "__environment_room": full}, "done": done}
    tasks = [
        spread("right", str(tar), right),
        spread("wrong", str(tar), wrong),
        spread("missing", f"{tar}.gone", right),
        spread("unreadable", f"/{'x' * 300}", right),
    ]
    return {
        name: shared_play(tasks, hosts={"h1": facts, "h2": facts}) for name, facts in seen.items()
    }


def test_a_tar_that_is_the_promised_one_is_copied_to_one_host(played: Any) -> None:
    found = played["lacks"]["right"]
    assert not found.get("failed")
    assert (found["copied"], found["entry"], found["size"]) == (True, "h1", len(CONTENT))
    assert set(found["upstream"]) == {"h1", "h2"}


def test_one_that_is_not_is_refused_with_both_checksums_and_what_to_do(played: Any) -> None:
    told = played["lacks"]["wrong"]
    assert told["failed"] and "is not the expected image" in told["msg"]
    assert told["expected"] == f"SHA-256 {'0' * 64}"
    assert sha256(CONTENT).hexdigest() in told["found"]
    assert told["where"].endswith("engine.tar on the controller")
    assert "engine_image_sha256" in told["msg"]


def test_one_that_is_missing_or_cannot_be_read_is_one_error(played: Any) -> None:
    assert "neither on a host nor on the controller" in played["lacks"]["missing"]["msg"]
    told = played["lacks"]["unreadable"]
    assert "cannot be read on the controller" in told["msg"]
    assert "File name too long" in told["found"]


def test_room_is_asked_for_before_the_tar_is_read(played: Any) -> None:
    assert played["full"]["right"]["where"] == "h1, h2"
    for name in ("right", "wrong"):
        assert "h1 has 0.0 GiB free in /c/images" in played["full"][name]["msg"]


def test_where_all_have_the_image_nobody_reads_the_tar(played: Any) -> None:
    for name in ("right", "wrong", "missing"):
        assert not played["done"][name].get("failed")
        assert played["done"][name]["upstream"] == {}
