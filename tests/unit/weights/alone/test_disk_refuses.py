"""A directory that takes no weights is told with its owner; root mends what it can."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_image_tar import KEPT

from tests.emulators.hub import Hub
from vllm_ansible.node.failure import Failure
from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import hub_manifest, models
from vllm_ansible.node.weights.store.disk_failure import disk_errors_told, disk_failure

from ..passing.nodes import silent
from .model import MODEL, shard

NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def of_root() -> Iterator[Path]:
    """Make a directory of root that everybody can see, which pytest's own are not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o755)  # noqa: S103  to be seen by nobody
        yield Path(made, "models")


@root
def test_a_directory_of_somebody_else_is_told_with_both_names(
    wanted: dict[str, Any], of_root: Path
) -> None:
    of_root.mkdir(mode=0o755)
    wanted["models_dir"] = str(of_root)
    key = of_root.with_name("key")
    key.write_text("k" * 32)
    wanted["store"]["key_file"] = str(key)
    with as_nobody(), pytest.raises(Failure) as error:
        weights.fetch_all([MODEL], wanted, silent)
    assert str(error.value) == f"nobody may not write weights to {of_root}"
    assert "Permission denied" in error.value.details["found"]
    assert error.value.details["found"].endswith("it belongs to root")
    assert error.value.details["fix"] == f"sudo chown -R nobody: {of_root}"


@root
def test_what_the_hub_says_cannot_be_kept_there_either(
    wanted: dict[str, Any], of_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted["models_dir"] = str(of_root)
    monkeypatch.setattr(hub_manifest, "_asked", lambda *_: {"revision": "a", "files": []})
    with as_nobody(), pytest.raises(Failure, match="nobody may not write weights"):
        hub_manifest.ask(MODEL, wanted)


@root
def test_root_takes_over_what_belongs_to_somebody_else(wanted: dict[str, Any], hub: Hub) -> None:
    weights.fetch_all([MODEL], wanted, silent)
    place = Path(MODEL.place(wanted["models_dir"]))
    for path in [place, *place.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
        path.chmod(0o700 if path.is_dir() else 0o600)
    lost = place / "model-2-of-2.safetensors"
    lost.unlink()
    weights.fetch_all([MODEL], wanted, silent)
    assert models.look(MODEL, wanted["models_dir"]) is not None
    assert hub.sent["model-1-of-2.safetensors"] == len(shard("a")), "fetched again"
    for path in place.rglob("*"):
        readable = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == readable, "the service could not read it"
    assert stat.S_IMODE(place.stat().st_mode) == 0o755


def test_root_that_is_refused_hears_of_root_squash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    refused = disk_failure(PermissionError(errno.EPERM, "Not permitted", "/nfs/m/a"), "/nfs/m")
    assert str(refused) == "root may not write weights to /nfs/m"
    assert "root_squash" in refused.details["found"]
    assert "no_root_squash" in refused.details["fix"]


def test_a_disk_that_is_mounted_read_only_is_told() -> None:
    refused = disk_failure(OSError(errno.EROFS, "Read-only file system", "/m/a"), "/m")
    assert str(refused) == "weights cannot be written: /m is mounted read-only"


def test_the_tar_of_an_image_is_not_told_as_weights() -> None:
    for number in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO):
        refused = disk_failure(OSError(number, os.strerror(number), "/c/images/a"), "/c", KEPT)
        told = f"{refused} {refused.details}"
        assert "the tar of the engine's image" in str(refused)
        assert not any(word in told for word in ("weights", "models", "model:"))
    full = disk_failure(OSError(errno.ENOSPC, "No space left on device", "/c/images/a"), "/c", KEPT)
    assert str(full) == "the disk is full while the tar of the engine's image arrives"
    assert full.details["where"] == "/c/images/a"
    assert "set cluster_dir to a larger disk" in full.details["fix"]


def test_what_is_no_error_of_the_disk_stays_what_it_is() -> None:
    with pytest.raises(FileNotFoundError), disk_errors_told("/models"):
        raise FileNotFoundError(errno.ENOENT, "No such file", "/tools/bin/uv")
