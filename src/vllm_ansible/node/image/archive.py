"""A tar of `docker save` or `podman save`: what is in it, before anything is loaded."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from ..failure import Failure

# Compressed ones grow about so much; layers inside a plain one are as long as on the disk.
COMPRESSED_GROWTH = 3.0
PLAIN_GROWTH = 1.1
ZSTD = b"\x28\xb5\x2f\xfd"
MAGIC = (b"\x1f\x8b", ZSTD, b"BZh", b"\xfd7zXZ")
STEP = 1 << 24
FIX = (
    "save the image again (docker save NAME --output FILE), and give its new checksum in "
    "engine_image_sha256"
)
UNPACK = (
    "unpack it (zstd -d FILE), and give the checksum of what comes out in engine_image_sha256; "
    "gzip, bzip2 and xz may stay"
)


class Watched(io.FileIO):
    """A file that tells where reading is, every STEP bytes; it may go back to its beginning."""

    def __init__(self, path: str, see: Callable[[int], None]) -> None:
        super().__init__(path)
        self._see, self._seen = see, 0

    def read(self, size: Any = -1, /) -> bytes:
        """Return the next bytes."""
        data = super().read(size)
        if abs(self.tell() - self._seen) >= STEP:
            self._seen = self.tell()
            self._see(self._seen)
        return data


def told(path: str, see: Callable[[int], None]) -> dict[str, Any]:
    """Return the layers of the image in a tar, its names, and its id; raise Failure if it has none.

    layers: digests of their content, the same in every tool that loads them. see: is told now and
    then how many bytes of the file were read, since all of a compressed one has to be.
    """
    try:
        with Watched(path, see) as file, tarfile.open(fileobj=file) as archive:
            listed = json.loads(_member(archive, "manifest.json").read())
            if len(listed) != 1:
                raise _no_image(path, f"{len(listed)} images", "one image")
            config = json.loads(_member(archive, listed[0]["Config"]).read())
            for layer in listed[0]["Layers"]:
                _member(archive, layer)
            return {
                "layers": list(config["rootfs"]["diff_ids"]),
                "names": list(listed[0].get("RepoTags") or []),
                "id": os.path.basename(listed[0]["Config"]).partition(".")[0],
                "architecture": str(config.get("architecture", "")),
            }
    except (tarfile.TarError, EOFError, OSError) as error:
        raise _no_image(path, str(error) or type(error).__name__) from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _no_image(path, f"no manifest of an image ({error})") from error


def room(path: str) -> int:
    """Return how many bytes of the tool's storage the image in a tar takes, about."""
    growth = COMPRESSED_GROWTH if _begins(path, *MAGIC) else PLAIN_GROWTH
    return int(os.path.getsize(path) * growth)


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    if found is None:
        raise KeyError(name)
    return found


def _no_image(path: str, found: str, expected: str = "a tar of `docker save`") -> Failure:
    return Failure(
        f"{path} holds no image that can be loaded: {found}",
        expected=expected,
        found=found,
        where=path,
        fix=UNPACK if _begins(path, ZSTD) else FIX,
    )


def _begins(path: str, *heads: bytes) -> bool:
    with suppress(OSError), open(path, "rb") as handle:
        return handle.read(5).startswith(heads)
    return False
