"""A tar of `docker save` or `podman save`: what is in it, before anything is loaded."""

from __future__ import annotations

import json
import os
import tarfile
from typing import IO, Any

from ..failure import Failure

# Compressed ones grow about so much; layers inside a plain one are as long as on the disk.
COMPRESSED_GROWTH = 3.0
PLAIN_GROWTH = 1.1
MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")


def told(path: str) -> dict[str, Any]:
    """Return the layers of the image in a tar, its names, and its id; raise Failure if it has none.

    layers: digests of their content, the same in every tool that loads them.
    """
    try:
        with tarfile.open(path) as archive:
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
    with open(path, "rb") as handle:
        packed = handle.read(5).startswith(MAGIC)
    return int(os.path.getsize(path) * (COMPRESSED_GROWTH if packed else PLAIN_GROWTH))


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
        fix="save the image again (docker save NAME --output FILE), and give its new checksum in "
        "engine_image_sha256",
    )
