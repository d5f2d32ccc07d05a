"""A model of object storage on one host, from the listing to the record of what was proven."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.object_storage import ObjectStorage
from vllm_ansible.node.failure import Failure
from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights import hub_manifest, models
from vllm_ansible.node.weights.safetensors import WeightsError

from .objects import BUCKET, PREFIX, SECRET, SHARDS, STORED, brought


def test_a_model_is_recorded_once_it_is_proven(
    stored: dict[str, Any], storage: ObjectStorage, tree: Path
) -> None:
    record = brought(stored)
    assert record["source"] == "s3" and record["model"] == "s3://models/team/tiny"
    assert record["revision"] == stored["store"]["manifests"][STORED.slug()]["revision"]
    names = [one["name"] for one in record["files"]]
    assert {"1_Pooling/config.json", "config.json", *SHARDS} < set(names) and len(names) == 5
    for name in SHARDS:
        assert (Path(record["path"]) / name).read_bytes() == (tree / name).read_bytes()
    # Nobody recorded digests: read for them once, and fetched once.
    assert {storage.sent[f"{PREFIX}/{name}"] for name in SHARDS} == {
        2 * (tree / name).stat().st_size for name in SHARDS
    }


def test_of_a_bucket_that_changed_only_what_is_another_comes_again(
    stored: dict[str, Any], storage: ObjectStorage
) -> None:
    first = brought(stored)
    storage.sent.clear()
    storage.put(BUCKET, f"{PREFIX}/config.json", b'{"a": 1}')
    storage.put(BUCKET, f"{PREFIX}/generation_config.json", b"{}")
    second = brought(stored)
    assert second["revision"] != first["revision"]
    assert (Path(second["path"]) / "config.json").read_text() == '{"a": 1}'
    assert len(second["files"]) == len(first["files"]) + 1
    assert not any(storage.sent[f"{PREFIX}/{name}"] for name in SHARDS)


def test_a_damaged_file_alone_comes_again(stored: dict[str, Any], storage: ObjectStorage) -> None:
    record = brought(stored)
    damaged = Path(record["path"]) / SHARDS[1]
    right = damaged.read_bytes()
    damaged.write_bytes(right[:-1] + b"!")
    storage.sent.clear()
    stored["store"]["rehash"] = True
    brought(stored)
    assert damaged.read_bytes() == right
    assert set(+storage.sent) == {f"{PREFIX}/{SHARDS[1]}"}


def test_an_object_that_is_not_what_was_recorded_is_refused(
    stored: dict[str, Any], storage: ObjectStorage, tree: Path
) -> None:
    digests = {name: hashlib.sha256((tree / name).read_bytes()).hexdigest() for name in SHARDS}
    content = (tree / SHARDS[0]).read_bytes()
    storage.put(BUCKET, f"{PREFIX}/{SHARDS[0]}", content[:-1] + b"!")
    text = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    storage.put(BUCKET, f"{PREFIX}/SHA256SUMS", text.encode())
    with pytest.raises(Failure) as error:
        brought(stored)
    assert str(error.value) == (f"checksum mismatch: {SHARDS[0]} of {STORED.name} from its bucket")
    assert error.value.details["expected"] == f"sha256 {digests[SHARDS[0]]}"
    assert "SHA256SUMS" in error.value.details["fix"]
    assert models.look(STORED, stored["models_dir"]) is None
    partial = Path(STORED.partial(stored["models_dir"]))
    assert not (partial / SHARDS[0]).exists()
    assert not list(partial.rglob(f"{SHARDS[0]}.*.part"))


def test_check_mode_reads_no_object_and_keeps_nothing(
    stored: dict[str, Any], storage: ObjectStorage
) -> None:
    manifest = hub_manifest.ask(STORED, stored, check=True)
    assert [one["sha256"] for one in manifest["files"]] == [None] * 5
    assert not any(storage.sent[f"{PREFIX}/{name}"] for name in SHARDS)
    assert not (Path(stored["models_dir"]) / ".store" / STORED.slug()).exists()


def test_how_far_reading_is_is_told(stored: dict[str, Any], storage: ObjectStorage) -> None:
    told: list[Any] = []

    def tell(*report: Any) -> None:
        told.append(report)

    read = hub_manifest.ask(STORED, stored, report=tell, reads=True)["read"]
    assert told[-1][:3] == (read, read, "bytes")
    assert told[-1][3].endswith("once more to hash it: no digests were recorded")


def test_no_secret_is_an_argument_or_lies_beside_the_models(
    stored: dict[str, Any], storage: ObjectStorage, tmp_path: Path
) -> None:
    storage.stall(f"{PREFIX}/{SHARDS[0]}", after=10, seconds=2)  # long enough to be looked at
    seen: list[str] = []

    def look(*_: Any) -> None:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with open(process, "rb") as line:
                seen.append(line.read().decode(errors="replace"))

    hub_manifest.ask(STORED, stored, report=look, reads=True)
    assert any("request.json" in line for line in seen)
    assert not any(SECRET in line for line in seen)
    variables = weights.environment(stored)
    assert variables["AWS_SHARED_CREDENTIALS_FILE"] == stored["credentials_path"]
    assert SECRET not in " ".join(variables.values())
    brought(stored)
    for path in Path(stored["models_dir"]).rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_wrong_credentials_are_told_in_a_sentence(
    stored: dict[str, Any], storage: ObjectStorage
) -> None:
    storage.keys = set()
    with pytest.raises(WeightsError, match="object storage refused the credentials") as error:
        hub_manifest.ask(STORED, stored)
    assert set(error.value.details) == {"expected", "found", "where", "fix"}
