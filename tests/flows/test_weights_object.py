"""A model of object storage, from its bucket to a verified directory, by the playbooks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.object_storage import ObjectStorage

from .clone import Clone, Ran
from .hub_model import MAKE
from .processes import end_all

URL = "s3://models/team/tiny"
SECRET = "wJalrXUtnFEMISECRET"  # noqa: S105  nobody's
HERE = {"here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return where everything of these tests lies; no process of a cluster stays behind."""
    made = tmp_path_factory.mktemp("object")
    yield made
    end_all(made / "cluster")


@pytest.fixture(scope="module")
def storage(directory: Path) -> Iterator[ObjectStorage]:
    """Serve a model of four shards, whose digests nobody recorded."""
    subprocess.run([sys.executable, "-c", MAKE, directory / "made", ""], check=True)
    with ObjectStorage({"AKIAGOOD"}) as made:
        made.bucket("models")
        for path in (directory / "made/tree").iterdir():
            made.put("models", f"team/tiny/{path.name}", path.read_bytes())
        yield made


@pytest.fixture(scope="module")
def run(storage: ObjectStorage, directory: Path) -> Callable[..., Ran]:
    """Run a playbook for an engine with the model, credentials in a file of the controller."""
    clone = Clone(directory / "clone")
    credentials = directory / "credentials"
    credentials.write_text(
        f"[default]\naws_access_key_id = AKIAGOOD\naws_secret_access_key = {SECRET}\n"
    )
    inventory = clone.inventory(
        "object",
        HERE,
        cluster_name="object",
        cluster_dir=str(directory / "cluster"),
        accelerator="cpu",
        privileges="none",
        port_base=28100,
        engines=[{"name": "chat", "model": URL}],
        object_storage_credentials_file=str(credentials),
        object_storage_endpoint=storage.url,
    )

    def play(playbook: str, *arguments: str, status: int = 0) -> Ran:
        ran = clone.run(inventory, *arguments, playbook=f"playbooks/{playbook}.yml")
        assert ran.status == status, ran.output
        return ran

    return play


def place(directory: Path) -> Path:
    (found,) = (directory / "cluster/models").glob("s3--models--team--tiny--*[0-9a-f]")
    return found


def test_a_model_arrives_and_who_recorded_nothing_is_told(
    storage: ObjectStorage, directory: Path, run: Callable[..., Ran]
) -> None:
    prepared = run("prepare")
    told = " ".join(prepared.output.split())
    assert f"bytes of {URL}: they were read once more to hash them" in told
    assert f"aws s3 cp - {URL}/SHA256SUMS" in told
    run("weights")
    tree = directory / "made/tree"
    for path in tree.iterdir():
        assert (place(directory) / path.name).read_bytes() == path.read_bytes()
        assert storage.sent[f"team/tiny/{path.name}"] == 2 * path.stat().st_size


def test_what_is_there_is_asked_for_no_more(
    storage: ObjectStorage, run: Callable[..., Ran]
) -> None:
    asked = len(storage.asked)
    assert run("prepare").changed == []
    assert run("weights").changed == []
    assert len(storage.asked) == asked


def test_what_was_damaged_is_mended_alone(
    storage: ObjectStorage, directory: Path, run: Callable[..., Ran]
) -> None:
    shard = place(directory) / "model-00002-of-00004.safetensors"
    right = shard.read_bytes()
    shard.write_bytes(right[:-1] + b"!")
    storage.sent.clear()
    run("weights", "-e", "weights_rehash=true")
    assert shard.read_bytes() == right
    assert set(+storage.sent) == {f"team/tiny/{shard.name}"}


def test_wrong_credentials_are_one_sentence(
    storage: ObjectStorage, directory: Path, run: Callable[..., Ran]
) -> None:
    keys, storage.keys = storage.keys, set()
    ran = run("weights", "-e", "weights_rehash=true", status=2)
    storage.keys = keys
    assert "object storage refused the credentials" in ran.failure["msg"]
    assert "object_storage_credentials_file" in ran.failure["fix"]


def test_the_secret_lies_in_its_file_alone(directory: Path, run: Callable[..., Ran]) -> None:
    def holders(below: Path) -> set[str]:
        return {
            str(path.relative_to(directory))
            for path in below.rglob("*")
            if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes()
        }

    kept = directory / "cluster/secrets/object_storage_credentials"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert holders(directory / "cluster") == {"cluster/secrets/object_storage_credentials"}
    assert holders(directory / "clone") == set()


def test_the_model_goes_when_no_engine_needs_it(directory: Path, run: Callable[..., Ran]) -> None:
    without: Any = ("-e", '{"engines": []}')
    gone = place(directory)
    assert gone.exists()
    run("prune", *without)
    assert not gone.exists()
