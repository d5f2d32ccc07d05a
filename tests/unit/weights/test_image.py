"""Who gets the tar of an image, and from whom."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.weights.image import GIB, TAR, expect_room, manifest, way

FILE = "/data/engine.tar"


def look(loaded: bool = False, size: int = 0) -> dict[str, Any]:
    return {"loaded": loaded, "tar_bytes": size}


def test_nobody_who_has_it_gets_it() -> None:
    assert way(FILE, {"a": look(loaded=True), "b": look(size=7)}, 7).upstream == {}


def test_it_enters_once_and_goes_from_host_to_host() -> None:
    found = way(FILE, {name: look() for name in "abc"}, 7)
    assert (found.entry, found.copied, found.size) == ("a", True, 7)
    before = {host: asked[TAR]["before"] for host, asked in found.upstream.items()}
    assert before == {"a": [], "b": ["a"], "c": ["b", "a"]}


def test_a_host_that_has_it_passes_it_on_and_the_controller_sends_nothing() -> None:
    found = way(FILE, {"a": look(), "b": look(loaded=True, size=9), "c": look(loaded=True)}, 0)
    assert (found.entry, found.copied, found.size) == ("b", False, 9)
    assert found.upstream["a"][TAR]["before"] == ["b"]
    assert "c" not in found.upstream


def test_a_tar_that_nobody_has_is_refused() -> None:
    with pytest.raises(PlanError, match="neither on a host nor on the controller: /data/engine"):
        way(FILE, {"a": look()}, 0)


def test_two_different_tars_are_refused() -> None:
    looks = {"a": look(), "b": look(size=9), "c": look(size=5)}
    with pytest.raises(PlanError, match="9 bytes on b, 5 bytes on c"):
        way(FILE, looks, 0)


def place(path: str, free: float, device: int) -> dict[str, Any]:
    return {"path": path, "device": device, "free_bytes": int(free * GIB)}


def room(
    free: float, there: float = 0, storage: float | None = None, received: float | None = None
) -> dict[str, Any]:
    """Room where the tar is to lie; the other places are on the same disk unless they have own."""
    return {
        "tar": {**place("/c/images", free, 1), "there_bytes": int(there * GIB)},
        "storage": place(
            "/storage", free if storage is None else storage, 1 + (storage is not None)
        ),
        "received": place(
            "/home", free if received is None else received, 1 + 2 * (received is not None)
        ),
    }


def asked_for_room(rooms: dict[str, Any], copied: bool = True, **looks: Any) -> str:
    """Return what is refused of a tar of 10 GiB that takes 11 to load; nothing where it fits."""
    seen = {host: looks.get(host, look()) for host in rooms}
    decided = way(FILE, seen, 10 * GIB if copied else 0)
    try:
        expect_room(decided, seen, rooms, 11 * GIB)
    except PlanError as error:
        return str(error)
    return ""


def test_every_host_without_room_is_named_with_figures() -> None:
    told = asked_for_room({"a": room(21.5), "b": room(20.5), "c": room(3)})
    assert "whose tar has 10.0 GiB" in told
    assert (
        "b has 20.5 GiB free in /c/images and /storage, and it takes about 10.0 GiB for the tar, "
        "11.0 GiB to load it; c has 3.0 GiB free" in told
    )
    assert "a has" not in told
    assert asked_for_room({"a": room(21.5), "b": room(21)}) == ""


def test_each_disk_is_asked_for_what_it_gets() -> None:
    assert asked_for_room({"a": room(10, storage=11)}) == ""
    told = asked_for_room({"a": room(9, storage=10)})
    assert "a has 9.0 GiB free in /c/images, and it takes about 10.0 GiB for the tar; 10.0" in told
    # What Ansible copies is whole in its own directory first, on the host that it is copied to.
    rooms = {"a": room(21, received=9), "b": room(21, received=9)}
    told = asked_for_room(rooms)
    assert "a has 9.0 GiB free in /home, and it takes about 10.0 GiB for the tar while it" in told
    assert "b has" not in told


def test_what_is_there_already_takes_no_room_again() -> None:
    assert asked_for_room({"a": room(21), "b": room(14, there=7)}) == ""
    assert "b has 13.0" in asked_for_room({"a": room(21), "b": room(13, there=7)})
    # A copy begins anew, unless it is there whole.
    assert "a has 14.0" in asked_for_room({"a": room(14, there=7)})
    assert asked_for_room({"a": room(11, there=10)}) == ""


def test_a_host_that_has_the_tar_or_the_image_needs_less() -> None:
    has, done = look(size=10 * GIB), look(loaded=True)
    rooms = {"a": room(11), "b": room(21), "c": {"skipped": True}}
    assert asked_for_room(rooms, copied=False, a=has, c=done) == ""
    rooms["a"] = room(10)
    assert "a has 10.0 GiB" in asked_for_room(rooms, copied=False, a=has, c=done)


def test_the_store_sees_a_model_of_one_file() -> None:
    ((slug, told),) = manifest("image-1", 7, "f" * 64).items()
    assert slug == "image-1"
    assert told["files"] == [{"name": TAR, "bytes": 7, "sha256": "f" * 64}]
