"""A probe on a disk of this machine, where no read comes from a server or from a cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from vllm_ansible.node.nfs import probe, room, users

MIB = 1 << 20


def test_memory_forgets_a_file_before_it_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    probe.write(str(file), 3 * MIB + 5)
    assert file.stat().st_size == 3 * MIB + 5
    with file.open("rb") as handle:
        handle.read()
        assert probe.in_memory(handle.fileno(), 3 * MIB + 5) > 3 * MIB
        assert probe.forget(handle.fileno(), 3 * MIB + 5) < 0.3 * MIB
    assert probe.in_memory(0, 0) == 0


def test_a_link_that_somebody_laid_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("as it was")
    (tmp_path / "file").symlink_to(tmp_path / "secret")
    probe.write(str(tmp_path / "file"), 5)
    assert (tmp_path / "secret").read_text() == "as it was"
    assert not (tmp_path / "file").is_symlink()
    probe.write(str(tmp_path / "file"), 7)
    assert (tmp_path / "file").stat().st_size == 7, "what a run left is replaced"


def test_bytes_that_cannot_be_counted_are_no_proof(tmp_path: Path) -> None:
    found = probe.probe(str(tmp_path), "h1", MIB, cached=True)
    assert not found["fsc"]
    assert len(found["reads"]) == 1 + probe.REPEATS
    assert {one["server_bytes"] for one in found["reads"]} == {None}
    assert not probe.from_cache(found["reads"][-1], MIB)
    assert os.listdir(tmp_path / probe.DIRECTORY) == [], "its file is gone"


def test_a_read_counts_as_cached_when_little_came_from_elsewhere() -> None:
    one = {"server_bytes": 0, "memory_bytes": 0}
    assert probe.from_cache(one, MIB)
    assert probe.from_cache({**one, "server_bytes": 104857}, MIB)
    assert not probe.from_cache({**one, "server_bytes": 104858}, MIB)
    assert not probe.from_cache({**one, "memory_bytes": MIB}, MIB), "memory is no cache"


def test_a_process_that_has_a_file_open_is_named(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/weights").touch()
    (tmp_path / "shared-too").touch()
    wait = "import sys; handle = open(sys.argv[1]); print(); sys.stdin.read()"
    for file, used in (("shared/weights", True), ("shared-too", False)):
        with subprocess.Popen(
            [sys.executable, "-c", wait, str(tmp_path / file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            found = users.users_of(str(tmp_path / "shared"))
            assert [one.split()[0] for one in found] == ([str(process.pid)] if used else [])
            process.communicate()


def test_a_disk_is_looked_at_where_the_cache_will_be(tmp_path: Path) -> None:
    found = room.look(str(tmp_path / "not/yet"))
    assert 0 < found["free"] < found["size"]
    assert (found["network"], found["used"]) == (False, False)
    (tmp_path / "cache").mkdir()
    assert room.look(str(tmp_path))["used"]
    assert room.attributes_refused("/proc"), "nothing can be kept there"
