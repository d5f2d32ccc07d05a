"""What was compiled on one host is what another one gets, and nobody is led astray by links."""

from __future__ import annotations

import io
import os
import signal
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node import forked
from vllm_ansible.node.engine import compiled

LIMIT = 1 << 20


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    made = tmp_path / "one" / "cache"
    for name in ("triton/ab/kernel.so", "vllm/torch_compile_cache/1/rank_0_0/code.py"):
        path = made / name
        path.parent.mkdir(parents=True)
        path.write_text(name)
    (made / "triton/ab/kernel.so").chmod(0o755)
    (made / "vllm/gpu_p2p_access_cache_for_0.json").write_text("of this host")
    return made


def names(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def packed(cache: Path, user: str | None = None) -> io.BytesIO:
    target = io.BytesIO()
    told = compiled.pack(str(cache), target, user, LIMIT)
    assert told["size"] == len(target.getvalue())
    target.seek(0)
    return target


def test_another_host_gets_it_with_its_modes_and_only_once(cache: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    archive = packed(cache)
    assert compiled.unpack(archive, str(other), None) == 2
    assert names(other) == [
        "triton/ab/kernel.so",
        "vllm/torch_compile_cache/1/rank_0_0/code.py",
    ]
    assert os.access(other / "triton/ab/kernel.so", os.X_OK)
    (other / "triton/ab/kernel.so").write_text("its own")
    archive.seek(0)
    assert compiled.unpack(archive, str(other), None) == 0
    assert (other / "triton/ab/kernel.so").read_text() == "its own"


def test_links_are_not_followed_out_of_the_cache(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("swordfish")
    (cache / "triton/key").symlink_to(tmp_path / "secrets/key")
    (cache / "triton/all").symlink_to(tmp_path / "secrets")
    (cache / "inductor").symlink_to(tmp_path / "secrets")
    with tarfile.open(fileobj=packed(cache)) as archive:
        assert not [name for name in archive.getnames() if "key" in name]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../key.yaml", tarfile.REGTYPE),
        ("/etc/cron.d/x", tarfile.REGTYPE),
        ("triton/../../key.yaml", tarfile.REGTYPE),
        ("config/vllm.yaml", tarfile.REGTYPE),
        ("triton/link", tarfile.SYMTYPE),
    ],
)
def test_an_archive_with_anything_else_is_refused_whole(
    tmp_path: Path, name: str, kind: bytes
) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("triton/good"))
        entry = tarfile.TarInfo(name)
        entry.type = kind
        archive.addfile(entry)
    made.seek(0)
    with pytest.raises(compiled.CompiledError, match="no engine compiles"):
        compiled.unpack(made, str(tmp_path / "cache"), None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_it_is_done_as_the_engines_user(cache: Path, nobodys: Path) -> None:
    own = nobodys / "cache"
    compiled.unpack(packed(cache), str(own), "nobody")
    assert (own / "triton/ab/kernel.so").owner() == "nobody"
    packed_to(nobodys / "archive", own)
    with (nobodys / "archive").open("rb") as archive:
        assert compiled.unpack(archive, str(cache.parent / "root's"), None) == 2
    secret = own / "triton/secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    with pytest.raises(compiled.CompiledError, match="Permission denied"):
        packed_to(nobodys / "archive", own)
    of_root = nobodys / "of-root"
    of_root.mkdir(mode=0o755)
    with pytest.raises(compiled.CompiledError, match="Permission denied"):
        compiled.unpack(packed(cache), str(of_root / "cache"), "nobody")


def packed_to(target: Path, cache: Path) -> None:
    with target.open("w+b") as opened:
        compiled.pack(str(cache), opened, "nobody", LIMIT)


def test_a_fifo_in_the_place_of_a_file_holds_nobody(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = cache / "triton/ab/kernel.so", compiled.look(str(cache))
    listed = compiled._files
    monkeypatch.setattr(compiled, "look", lambda place: seen)

    def swapped(place: str) -> Iterator[tuple[str, os.stat_result]]:
        # An engine has all the time between the look at a file and its opening.
        for one, status in listed(place):
            if one == str(path) and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
                os.mkfifo(path)
            yield one, status

    monkeypatch.setattr(compiled, "_files", swapped)
    target = io.BytesIO()
    (told,) = forked.run_each(
        [lambda tell: tell("packed", compiled.pack(str(cache), target, None, LIMIT))],
        120,
        Exception,
    )
    assert "error" not in told, told
    assert told["packed"]["files"] == seen["files"] - 1


def test_a_file_that_grows_meanwhile_is_not_packed_beyond_the_limit(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "look", lambda place: {"files": 1, "bytes": 1})
    with (cache / "triton/ab/kernel.so").open("wb") as grown:
        grown.truncate(LIMIT + 1)
    with pytest.raises(compiled.CompiledError, match="were compiled, more than"):
        compiled.pack(str(cache), io.BytesIO(), None, LIMIT)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_who_stops_what_works_as_it_does_not_stop_root() -> None:
    def work() -> dict[str, Any]:
        # What any process of that user can do to this one.
        os.kill(os.getpid(), signal.SIGSTOP)
        return {}

    with waking_up_after(300), pytest.raises(compiled.CompiledError, match="no answer within 2"):
        compiled.as_user("nobody", work, 2.0)


@contextmanager
def waking_up_after(seconds: float) -> Iterator[None]:
    """Let a wait that has no end of its own be a failure and not the end of all tests."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"still waited after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(int(seconds))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
