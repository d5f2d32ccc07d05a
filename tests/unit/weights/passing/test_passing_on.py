"""Hosts that complete a model together, from a hub that answers as the real one does."""

from __future__ import annotations

import dataclasses
import http.client
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulators.hub import Hub
from vllm_ansible.node.failure import Failure
from vllm_ansible.node.weights.store import receiver
from vllm_ansible.node.weights.store.incoming import Incoming
from vllm_ansible.node.weights.store.manifest import PIECE, Manifest, parse
from vllm_ansible.node.weights.store.shelf import Shelf
from vllm_ansible.node.weights.store.signing import header

from .model import MODEL, SHARDS, SLUG, sent, whole_on
from .nodes import LOOPBACK, Nodes


def test_each_byte_comes_from_the_hub_once_and_reaches_every_host(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b", "c")
    nodes.gather()
    whole_on(nodes, tree)
    assert sent(hub) == SHARDS


def test_hosts_without_a_way_outside_take_all_from_the_others(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b", "c")
    nodes.gather(outside=["b"])
    whole_on(nodes, tree)
    assert sent(hub) == SHARDS


def test_a_host_that_comes_later_takes_all_from_those_that_have_it(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b", "c")
    nodes.gather(only=["a"], among=["a"])
    before = sent(hub)
    nodes.gather(only=["b", "c"])
    whole_on(nodes, tree)
    assert sent(hub) == before == SHARDS


def test_a_host_that_died_is_passed_over(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b", "c")
    nodes.gather(only=["a", "b"], among=["a", "b"])
    nodes.all["b"].leave()
    nodes.gather(only=["c"])
    whole_on(nodes, tree)
    assert sent(hub) == SHARDS


def test_what_no_peer_sends_comes_from_the_hub(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b")
    nodes.all["a"].leave()
    nodes.gather(only=["b"])
    whole_on(nodes, tree, "b")


def test_a_host_without_a_way_outside_names_who_failed(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes("a", "b")
    nodes.all["a"].leave()
    nodes.gather(only=["b"], outside=["a"])
    error = nodes.all["b"].error
    assert isinstance(error, Failure)
    assert "no peer could send" in str(error) and "a (127.0.0.1:" in error.details["found"]


def spoil(path: str, offset: int) -> None:
    """Flip a bit without a trace in size or time, as a bad disk does."""
    found = os.stat(path)
    with open(path, "r+b") as content:
        content.seek(offset)
        byte = content.read(1)[0]
        content.seek(offset)
        content.write(bytes([byte ^ 4]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_a_peer_that_sends_something_wrong_is_passed_over(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b", "c")
    nodes.gather(only=["a", "b"], among=["a", "b"])
    for name in SHARDS:
        spoil(os.path.join(nodes.all["b"].shelf.final, name), 2 * PIECE + 5)
    nodes.gather(only=["c"])
    whole_on(nodes, tree, "c")
    gathering = nodes.all["c"].gathering
    assert gathering and any(
        "is not what its digest says" in one for one in gathering.line.troubles
    )
    assert sent(hub) == SHARDS


def test_a_peer_that_lies_with_digests_that_fit_is_found_by_the_hubs_own(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path, manifest: Manifest
) -> None:
    nodes = make_nodes("a", "b")
    nodes.gather(only=["a"], among=["a"])
    liar = nodes.all["a"].shelf
    for file in manifest.files:
        path = os.path.join(liar.final, file.name)
        if file.name in SHARDS:
            spoil(path, 5)
            lies = Incoming(liar, file)
            lies.begin_anew()
            with open(path, "rb") as content:
                while lies.beginning.pieces < file.pieces:
                    piece = content.read(file.length(lies.beginning.pieces))
                    lies.proofs.append(lies.beginning.after(piece))
                    lies.beginning.take(piece)
    nodes.gather(only=["b"])
    whole_on(nodes, tree, "b")
    assert sent(hub) == {name: 2 * size for name, size in SHARDS.items()}


def test_a_damaged_shard_alone_is_fetched_again(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a")
    nodes.gather()
    bad = next(iter(SHARDS))
    spoil(os.path.join(nodes.all["a"].shelf.final, bad), PIECE)
    nodes.gather(rehash=True)
    whole_on(nodes, tree)
    gathering = nodes.all["a"].gathering
    assert gathering and [bad in one for one in gathering.defects] == [True]
    assert sent(hub) == {name: size * (2 if name == bad else 1) for name, size in SHARDS.items()}


def test_a_damaged_shard_comes_from_whoever_has_it_whatever_its_place_in_the_chain(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b")
    nodes.gather(outside=["a"])
    bad = list(SHARDS)[:2]
    for name in bad:
        spoil(os.path.join(nodes.all["b"].shelf.final, name), PIECE)
    nodes.gather(outside=["a"], rehash=True)
    whole_on(nodes, tree)
    assert sent(hub) == SHARDS


def test_a_shard_that_is_damaged_everywhere_comes_from_the_hub_again(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for both to have proven what they have, on a busy machine, too.
    monkeypatch.setattr(receiver, "BESIDE_SECONDS", 4.0)
    nodes = make_nodes("a", "b")
    nodes.gather()
    bad = next(iter(SHARDS))
    for node in nodes.all.values():
        spoil(os.path.join(node.shelf.final, bad), PIECE)
    nodes.gather(rehash=True)
    whole_on(nodes, tree)
    assert sent(hub) == {name: size * (2 if name == bad else 1) for name, size in SHARDS.items()}


def test_files_that_somebody_copied_there_are_proven_and_kept(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b")
    final = Path(nodes.all["a"].shelf.final)
    final.mkdir(parents=True)
    for name in SHARDS:
        (final / name).write_bytes((tree / name).read_bytes())
    nodes.gather(outside=["a"])
    whole_on(nodes, tree)
    assert sent(hub) == dict.fromkeys(SHARDS, 0)


def test_what_the_hub_spoils_once_is_fetched_again_and_never_passed_on(
    make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    bad = next(iter(SHARDS))
    hub.flip(bad, PIECE + 3, times=1)
    nodes = make_nodes("a", "b", "c")
    nodes.gather(outside=["a"])
    whole_on(nodes, tree)
    assert sent(hub)[bad] == 2 * SHARDS[bad]


def test_what_the_hub_always_spoils_is_refused_by_name(
    make_nodes: Callable[..., Nodes], hub: Hub
) -> None:
    bad = next(iter(SHARDS))
    hub.flip(bad, 3, times=float("inf"))
    nodes = make_nodes("a")
    nodes.gather()
    error = nodes.all["a"].error
    assert isinstance(error, Failure)
    assert f"checksum mismatch: {bad} of {MODEL} from the hub" in str(error)
    assert not os.path.exists(nodes.all["a"].shelf.final)


def test_a_converged_host_asks_nobody(make_nodes: Callable[..., Nodes], hub: Hub) -> None:
    nodes = make_nodes("a")
    nodes.gather()
    asked = len(hub.asked)
    nodes.gather()
    assert nodes.all["a"].error is None
    assert len(hub.asked) == asked


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Give the host b a file system of its own, or another size of it."""
    place = tmp_path / "b"
    place.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("a small file system needs a root that may mount")

    yield mount
    subprocess.run(["umount", str(place)], capture_output=True)


def test_a_full_disk_is_told_and_what_came_stays(
    small_disk: Callable[[str], None], make_nodes: Callable[..., Nodes], hub: Hub, tree: Path
) -> None:
    nodes = make_nodes("a", "b")
    nodes.gather(only=["a"], among=["a"])
    small_disk("size=1500k")
    nodes.gather(only=["b"], streams=1)
    error = nodes.all["b"].error
    assert isinstance(error, Failure) and "the disk is full" in str(error)
    came = nodes.all["b"].has()
    assert came
    small_disk("remount,size=16m")
    nodes.gather(only=["b"])
    whole_on(nodes, tree)
    assert came <= nodes.all["b"].has()
    assert sent(hub) == SHARDS


@pytest.mark.parametrize("key", [b"another", None])
def test_a_stranger_gets_a_refusal(
    make_nodes: Callable[..., Nodes], manifest: Manifest, key: bytes | None
) -> None:
    nodes = make_nodes("a")
    nodes.gather()
    path = f"/{SLUG}/{manifest.files[0].key}?piece=0"
    port = nodes.all["a"].peer.port
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=120)
    connection.request("GET", path, headers={"Authorization": header(key, path)} if key else {})
    assert connection.getresponse().status == 401
    connection.close()


@pytest.mark.parametrize("path", ["/etc/passwd?piece=0", "/..%2F..%2Fkey?piece=0", f"/{SLUG}/x"])
def test_only_files_of_the_models_are_given(make_nodes: Callable[..., Nodes], path: str) -> None:
    node = make_nodes("a").all["a"]
    connection = http.client.HTTPConnection(LOOPBACK, node.peer.port, timeout=120)
    connection.request("GET", path, headers={"Authorization": header(node.key, path)})
    assert connection.getresponse().status == 404
    connection.close()


def test_a_name_that_leaves_the_directory_is_refused() -> None:
    with pytest.raises(Failure, match="cannot be a file of a model"):
        parse(SLUG, MODEL, {"revision": "a", "files": [{"name": "../../x", "bytes": 1}]})


def test_what_belongs_to_another_revision_goes_and_what_somebody_put_there_stays(
    make_nodes: Callable[..., Nodes], hub: Hub, manifest: Manifest
) -> None:
    nodes = make_nodes("a")
    nodes.gather()
    node = nodes.all["a"]
    final = Path(node.shelf.final)
    (final / "notes.txt").write_text("ours")
    gone = next(iter(SHARDS))
    left = tuple(file for file in manifest.files if file.name != gone)
    node.manifest = dataclasses.replace(manifest, files=left)
    nodes.gather()
    assert node.error is None
    assert not (final / gone).exists() and gone not in node.shelf.stock()
    assert (final / "notes.txt").exists()


def test_two_runs_at_once_wait_for_each_other(tmp_path: Path) -> None:
    shelf, waited = Shelf(str(tmp_path), SLUG), []
    with shelf.tend(lambda: None):
        assert shelf.tended()

        def give_up() -> None:
            waited.append(1)
            raise InterruptedError

        with pytest.raises(InterruptedError), Shelf(str(tmp_path), SLUG).tend(give_up):
            pass
    assert waited == [1] and not shelf.tended()
