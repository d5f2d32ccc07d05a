"""What a tar says of its image, plain and compressed, without any tool of containers."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from vllm_ansible.node.failure import Failure
from vllm_ansible.node.image import archive

LAYERS = [f"sha256:{'a' * 64}"]


def tar(path: Path, pack: Callable[[bytes], bytes] = bytes) -> str:
    """Write what `docker save` would of a small image, its manifest last."""
    config = {"rootfs": {"diff_ids": LAYERS}, "architecture": "amd64"}
    manifest = [{"Config": "0123.json", "Layers": ["a/layer.tar"], "RepoTags": ["a:1"]}]
    contents = {
        # Some times what gzip reads at once: 8 KiB, and 128 KiB from Python 3.12 on.
        "a/layer.tar": os.urandom(1_000_000),
        "0123.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as written:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            written.addfile(entry, io.BytesIO(content))
    path.write_bytes(pack(plain.getvalue()))
    return str(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_an_image_is_told_in_every_form(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    told = archive.told(tar(tmp_path / "image.tar", pack), lambda _: None)
    assert told == {"layers": LAYERS, "names": ["a:1"], "id": "0123", "architecture": "amd64"}


def test_a_compressed_tar_is_read_with_a_word_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "STEP", 20_000)
    seen: list[int] = []
    path = tar(tmp_path / "image.tar.gz", gzip.compress)
    archive.told(path, seen.append)
    assert len(seen) >= 4 and max(seen) <= os.path.getsize(path)
    assert all(one != other for one, other in pairwise(seen))


def test_what_cannot_be_read_here_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "image.tar.zst"
    path.write_bytes(archive.ZSTD + bytes(1000))
    with pytest.raises(Failure, match="holds no image that can be loaded") as refused:
        archive.told(str(path), lambda _: None)
    assert refused.value.details["fix"].startswith("unpack it (zstd -d FILE)")
    path.write_bytes(bytes(1000))
    with pytest.raises(Failure, match="holds no image that can be loaded") as refused:
        archive.told(str(path), lambda _: None)
    assert refused.value.details["fix"].startswith("save the image again")
