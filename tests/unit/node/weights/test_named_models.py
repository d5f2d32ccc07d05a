"""Directories that were only named: who may read them, and what whole files of them hold."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.weights import models, named_models
from vllm_ansible.node.weights.models import Model
from vllm_ansible.node.weights.safetensors import WeightsError

from .test_safetensors import write_shard

SIZE = 4 << 20


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files of a megabyte count as large."""
    monkeypatch.setattr(models, "WHOLE_WHEN_FOUND", 1 << 20)
    monkeypatch.setattr(os, "nice", lambda increment: 0)


def test_a_user_who_is_not_there_yet_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="there is no user vllm-nobody") as raised:
        named_models.expect_readable(str(tmp_path), "vllm-nobody")
    assert "--tags prepare" in raised.value.details["fix"]


def host(root: Path, at: int | None = None) -> tuple[Model, str]:
    """Make a model of one large file, of which one byte may be another."""
    place = root / "mine"
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    write_shard(place / "model.safetensors", ["a"], SIZE)
    if at is not None:
        content = bytearray((place / "model.safetensors").read_bytes())
        content[at] ^= 1
        (place / "model.safetensors").write_bytes(content)
    return Model("path", str(place)), str(root / "models")


def looked(model: Model, models_dir: str) -> dict[str, Any]:
    """Return what a look tells the gate, as library/model_weights.py makes it."""
    record = models.look(model, models_dir)
    if record is None:
        place = model.place(models_dir)
        record = models.make_record(model, place, place)
        models.write_record(model, models_dir, record)
    return models.summary(record, named_models.whole(model, models_dir))


def read(model: Model, models_dir: str) -> None:
    record = models.look(model, models_dir)
    assert record
    named_models.hash_whole(model, models_dir, record, lambda *_: None)


def test_what_blocks_do_not_show_whole_files_do_and_the_host_and_file_are_named(
    tmp_path: Path,
) -> None:
    hosts = {"h1": host(tmp_path / "1"), "h2": host(tmp_path / "2", at=-1)}
    found = {name: {"chat": looked(*one)} for name, one in hosts.items()}
    assert models.differences(found) == []
    for one in hosts.values():
        read(*one)
    found = {name: {"chat": looked(*one)} for name, one in hosts.items()}
    (problem,) = models.differences(found)
    assert problem["where"].startswith("h2: ")
    assert problem["found"].endswith("model.safetensors holds something else")


def test_what_is_known_is_not_read_again_until_it_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, models_dir = host(tmp_path)
    looked(model, models_dir)
    read(model, models_dir)
    record = models.look(model, models_dir)
    assert record
    assert named_models.lacking(model, models_dir, record) == []
    # A copy of the same size and time: rsync leaves the like behind.
    shard = Path(model.name) / "model.safetensors"
    before = shard.stat()
    copy = shard.with_name("copy")
    copy.write_bytes(shard.read_bytes())
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
    copy.replace(shard)
    assert models.look(model, models_dir) is None
    assert named_models.whole(model, models_dir) == {}
    named_models.forget(model, models_dir)
    named_models.forget(model, models_dir)


def test_a_damaged_file_of_digests_is_none(tmp_path: Path) -> None:
    model, models_dir = host(tmp_path)
    looked(model, models_dir)
    (Path(models_dir) / f".{model.slug()}.whole").write_text('{"model.safetensors": 7}')
    assert named_models.whole(model, models_dir) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try what another user may read")
def test_what_the_service_cannot_read_is_refused_with_its_file(tmp_path: Path) -> None:
    user = next(one.pw_name for one in pwd.getpwall() if one.pw_name == "nobody")
    model, _ = host(tmp_path)
    place = Path(model.name)
    for folder in (place, *place.parents):
        if folder == Path("/tmp"):  # noqa: S108 pytest's own
            break
        folder.chmod(0o755)
    named_models.expect_readable(model.name, user)
    (place / "model.safetensors").chmod(0o600)
    with pytest.raises(WeightsError) as refused:
        named_models.expect_readable(model.name, user)
    assert "Permission denied" in refused.value.details["found"]
    assert "model.safetensors" in refused.value.details["found"]
    named_models.expect_readable(model.name, None)
