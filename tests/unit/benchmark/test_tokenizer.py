"""What the archive of a tokenizer may hold before root unpacks it on the host of the load."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from vllm_ansible.benchmark.tokenizer import refused

MOST = 1000
MEMBERS = {
    "a setuid program": {"mode": 0o4755},
    "a link": {"type": tarfile.SYMTYPE, "linkname": "/etc/shadow"},
    "a hard link": {"type": tarfile.LNKTYPE, "linkname": "/etc/shadow"},
    "a device": {"type": tarfile.BLKTYPE, "devmajor": 8},
    "a pipe": {"type": tarfile.FIFOTYPE},
}


def packed(place: Path, **member: object) -> str:
    one = tarfile.TarInfo("tokenizer.json")
    one.size = 2
    for name, value in member.items():
        setattr(one, name, value)
    with tarfile.open(place / "t.tar", "w") as archive:
        archive.addfile(one, io.BytesIO(b"x" * one.size))
    return str(place / "t.tar")


def test_files_of_a_tokenizer_go_on(tmp_path: Path) -> None:
    assert refused(packed(tmp_path), MOST, "n1") == []
    assert refused(packed(tmp_path, mode=0o755), MOST, "n1") == []


@pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, member: dict[str, object]) -> None:
    (row,) = refused(packed(tmp_path, **{"size": 0, **member}), MOST, "n1")
    assert not row["ok"]
    assert (row["found"], row["where"]) == ("tokenizer.json", "n1")


def test_an_archive_that_is_too_large_or_none_at_all_is_refused(tmp_path: Path) -> None:
    (row,) = refused(packed(tmp_path, size=MOST + 1), MOST, "n1")
    assert (row["expected"], row["found"]) == ("at most 1000 bytes", "1001 bytes")
    (tmp_path / "t.tar").write_text("no archive")
    assert [one["expected"] for one in refused(str(tmp_path / "t.tar"), MOST, "n1")] == [
        "an archive"
    ]
