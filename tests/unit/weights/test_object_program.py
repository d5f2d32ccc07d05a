"""The program that fetches from object storage, with the real boto3, against moto and faults."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ...emulators.hub import CHUNK
from ...emulators.object_storage import ObjectStorage
from .conftest import SHARD, SHARDS, Program, hold
from .objects import BUCKET, PREFIX, SECRET, URL, asks, key

WANTED = ["config.json", "empty.txt", *SHARDS, "tokenizer/vocab.txt"]
TOTAL = 4 * SHARD + 5400
BLOCK = 2**18  # what the program may hold in memory of each file
Same = Callable[[], bool]


def fetching(program: Program, found: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the request for everything a manifest lists, as hosts make it."""
    files = found["files"]
    more.setdefault("digests", {one["name"]: one["sha256"] for one in files})
    more.setdefault("etags", {one["name"]: one["etag"] for one in files})
    return program.fetching(found, model=URL, **more)


@pytest.fixture
def request_all(storage: ObjectStorage, program: Program) -> dict[str, Any]:
    request = fetching(program, asks(program).result)
    storage.asked.clear()
    storage.sent.clear()
    return request


def test_the_manifest_has_names_sizes_and_recorded_digests(
    storage: ObjectStorage, program: Program, tree: Path
) -> None:
    found = asks(program).result
    assert [one["name"] for one in found["files"]] == WANTED
    for one in found["files"]:
        content = (tree / one["name"]).read_bytes()
        assert one["bytes"] == len(content)
        assert one["sha256"] == hashlib.sha256(content).hexdigest()
    assert len(found["revision"]) == 40 and found["read"] == 0
    # Nothing but the listing and the record was asked for.
    assert [asked.key for asked in storage.asked] == ["", key("SHA256SUMS")]


def test_digests_of_the_store_itself_are_taken(
    storage: ObjectStorage, program: Program, tree: Path
) -> None:
    storage.client.delete_object(Bucket=BUCKET, Key=key("SHA256SUMS"))
    for name in WANTED:
        content = (tree / name).read_bytes()
        storage.put(BUCKET, key(name), content, ChecksumAlgorithm="SHA256")
    found = asks(program).result
    assert all(
        one["sha256"] == hashlib.sha256((tree / one["name"]).read_bytes()).hexdigest()
        for one in found["files"]
    )
    assert found["read"] == 0 and not any(storage.sent[key(name)] for name in WANTED)


def test_what_nobody_recorded_is_read_once_and_for_all(
    storage: ObjectStorage, program: Program, tree: Path
) -> None:
    storage.client.delete_object(Bucket=BUCKET, Key=key("SHA256SUMS"))
    assert [one["sha256"] for one in asks(program, reads=False).result["files"]] == [None] * 7
    assert not any(storage.sent[key(name)] for name in WANTED)
    storage.cut(key(SHARDS[1]), after=SHARD // 2)
    ran = asks(program)
    assert all(
        one["sha256"] == hashlib.sha256((tree / one["name"]).read_bytes()).hexdigest()
        for one in ran.result["files"]
    )
    assert ran.result["read"] == TOTAL
    last = ran.said("progress")[-1]
    assert last[:2] == [TOTAL, TOTAL] and "no digests were recorded" in last[3]
    assert all(storage.sent[key(name)] == (tree / name).stat().st_size for name in WANTED)
    storage.sent.clear()
    again = asks(program).result
    assert again == ran.result
    assert not any(storage.sent[key(name)] for name in WANTED)
    # One object that is another by now is read again, and it alone.
    storage.put(BUCKET, key("config.json"), b"{}")
    changed = asks(program).result
    assert changed["revision"] != again["revision"]
    assert {name for name in WANTED if storage.sent[key(name)]} == {"config.json"}


def test_a_run_that_is_killed_while_it_reads_keeps_what_it_knows(
    storage: ObjectStorage, program: Program
) -> None:
    storage.client.delete_object(Bucket=BUCKET, Key=key("SHA256SUMS"))
    storage.stall(key(SHARDS[3]), after=1000, seconds=240)
    kept = program.directory / "kept.json"
    request = {"action": "manifest", "model": URL, "kept": str(kept)}
    with program.start(request) as process:
        while not kept.exists() or len(json.loads(kept.read_text())) < 6:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    storage.sent.clear()
    assert asks(program).result["read"] == TOTAL
    assert {name for name in WANTED if storage.sent[key(name)]} == {SHARDS[3]}


def test_an_object_that_may_not_be_read_ends_the_reading_of_others(
    storage: ObjectStorage, program: Program
) -> None:
    storage.client.delete_object(Bucket=BUCKET, Key=key("SHA256SUMS"))
    storage.stall(key(SHARDS[0]), after=1000, seconds=240)

    def deny() -> bool:
        storage.refuse(403, "AccessDenied", path=SHARDS[1])
        return True

    storage.when(key(SHARDS[1]), 1000, deny)
    assert asks(program).failure[0] == f"the credentials may not read {URL}"
    # It did not wait for the rest of the other one.
    assert storage.sent[key(SHARDS[0])] < SHARD


def test_many_objects_are_listed_in_pages(storage: ObjectStorage, program: Program) -> None:
    from moto.s3.models import s3_backends

    store = s3_backends["123456789012"]["aws"]
    for number in range(1003):  # past HTTP, which would take ten seconds
        store.put_object(BUCKET, f"many/part-{number:04}.bin", b"x")
    storage.put(BUCKET, "many/folder/", b"")
    found = program.manifest(model=f"s3://{BUCKET}/many", reads=False).result
    assert len(found["files"]) == 1003
    assert len([asked for asked in storage.asked if not asked.key]) == 2


def test_patterns_include_and_exclude(storage: ObjectStorage, program: Program) -> None:
    found = asks(program, include=["*.bin", "*.json", "*.txt"], exclude=["tokenizer/*"]).result
    names = [one["name"] for one in found["files"]]
    assert names == ["config.json", "empty.txt", "pytorch_model.bin"]
    sentence, details = asks(program, include=["*.gguf"]).failure
    assert sentence == f"{URL} has no file that is wanted"
    assert "config.json" in details["found"]


def test_everything_arrives_once(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    ran = program.run(request_all)
    assert ran.result == {"revision": request_all["revision"], "files": 7, "bytes": TOTAL}
    assert same()
    assert sorted(ran.said("file")) == sorted(request_all["files"])
    assert ran.said("progress")[-1] == [TOTAL, TOTAL, "bytes", "downloading"]
    assert sum(storage.sent.values()) == TOTAL
    assert len(storage.asked) == 7  # one request a file
    assert program.run(request_all).said("file") == request_all["files"]
    assert len(storage.asked) == 7


@pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
def test_what_a_killed_run_has_is_not_fetched_again(
    storage: ObjectStorage,
    program: Program,
    request_all: dict[str, Any],
    same: Same,
    part: float,
) -> None:
    storage.throttle(2 * SHARD)
    with program.start(request_all) as process:
        while sum(storage.sent.values()) < part * TOTAL:
            assert process.poll() is None
            time.sleep(0.002)
        hold(storage.line, storage.server.server_address[1])
        process.kill()
        process.wait()
        said = process.stdout.read() if process.stdout else ""
    storage.throttle(0)
    whole = [name for name in SHARDS if f'"file": "{name}"' in said]
    program.run(request_all).result  # noqa: B018  raises where it did not end well
    assert same()
    for name in SHARDS:
        # What was on its way when the program was killed is lost, with what it had not written.
        lost = storage.sent[key(name)] - SHARD
        assert lost == 0 if name in whole else 0 <= lost <= BLOCK + 64 * CHUNK, (name, lost)


def test_a_cut_connection_goes_on_where_it_was(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    storage.cut(key(SHARDS[0]), after=SHARD // 3)
    storage.cut(key(SHARDS[1]), after=SHARD // 2)
    assert program.run(request_all).result
    assert same()
    ranges = [asked.range for asked in storage.asked if asked.range]
    assert len(ranges) == 2
    assert all(storage.sent[key(name)] - SHARD <= CHUNK for name in SHARDS)


def test_a_stalled_object_is_asked_for_again(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    storage.stall(key(SHARDS[0]), after=SHARD // 2, seconds=240)
    assert program.run({**request_all, "stall_seconds": 0.5}).result
    # It did not wait for the end of the stall.
    assert any(asked.key == key(SHARDS[0]) and asked.range for asked in storage.asked)
    assert same()


def test_a_connection_that_keeps_breaking_is_given_up_only_after_several_times(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any]
) -> None:
    for _ in range(4):
        storage.cut(key(SHARDS[0]), after=0)
    request = {**request_all, "files": SHARDS[:1]}
    assert program.run(request).result
    for _ in range(3):
        storage.cut(key(SHARDS[1]), after=0)
    sentence, _ = program.run({**request, "files": SHARDS[1:2], "attempts": 3}).failure
    assert sentence == f"{URL} cannot be read: the connection to object storage fails"


def test_an_object_that_changes_midway_is_one_error(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any]
) -> None:
    storage.client.delete_object(Bucket=BUCKET, Key=key(SHARDS[1]))
    sentence, details = program.run({**request_all, "files": SHARDS[1:2]}).failure
    assert sentence == f"{SHARDS[1]} of {URL} changed while it was fetched"
    assert details["found"] == "NoSuchKey: it is gone"

    def change() -> bool:
        storage.put(BUCKET, key(SHARDS[0]), b"another")
        return True

    storage.when(key(SHARDS[0]), SHARD // 2, change)
    sentence, details = program.run({**request_all, "files": SHARDS[:1]}).failure
    assert sentence == f"{SHARDS[0]} of {URL} changed while it was fetched"
    assert details["found"].startswith("412")


def test_a_store_that_knows_no_ranges_and_no_conditions_will_do(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    storage.unknown = {"Range", "If-Match"}
    storage.cut(key(SHARDS[0]), after=SHARD // 2)
    assert program.run(request_all).result
    assert same()
    storage.client.delete_object(Bucket=BUCKET, Key=key("SHA256SUMS"))
    storage.cut(key(SHARDS[0]), after=SHARD // 2)
    found = {one["name"]: one["sha256"] for one in asks(program).result["files"]}
    assert found == request_all["digests"]
    (program.out / SHARDS[1]).unlink()
    storage.put(BUCKET, key(SHARDS[1]), b"another")
    sentence, _ = program.run(request_all).failure
    assert sentence == f"{SHARDS[1]} of {URL} changed while it was fetched"


def test_a_store_that_is_too_busy_is_asked_more_slowly(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any], same: Same
) -> None:
    storage.refuse(503, "SlowDown", times=2, path=SHARDS[0])
    storage.refuse(503, "SlowDown", path=SHARDS[1], Retry_After="2")
    storage.refuse(500, "InternalError", path="config.json")
    ran = program.run({**request_all, "workers": 1})
    assert ran.result
    assert same()
    first, second, third = [asked.at for asked in storage.asked if SHARDS[0] in asked.path]
    assert 0.5 <= second - first < third - second
    first, second = [asked.at for asked in storage.asked if SHARDS[1] in asked.path]
    assert 2 <= second - first < 4
    assert any("object storage asks to wait" in said[3] for said in ran.said("progress"))
    storage.refuse(503, "SlowDown", times=99)
    sentence, details = asks(program, attempts=2).failure
    assert sentence == "object storage takes no more requests for now"
    assert details["found"] == "503 SlowDown"


def test_what_credentials_lack_is_named_and_no_secret_is(
    storage: ObjectStorage, program: Program
) -> None:
    file = program.directory / "credentials"
    storage.keys = {"AKIAOTHER"}
    wrong = asks(program)
    sentence, details = wrong.failure
    assert sentence == "object storage refused the credentials"
    assert details["found"] == f"InvalidAccessKeyId, with credentials from {file}"
    assert "object_storage_credentials_file" in details["fix"]
    storage.keys = {"AKIAGOOD"}
    storage.refuse(403, "AccessDenied")
    denied = asks(program)
    assert denied.failure[0] == f"the credentials may not read {URL}"
    assert "s3:ListBucket" in denied.failure[1]["expected"]
    storage.refuse(400, "ExpiredToken")
    expired = asks(program)
    assert expired.failure[0] == "the credentials for object storage have expired"
    file.write_text(f"[default]\naws_access_key_id = AKIAGOOD\n{SECRET}\n")
    unreadable = asks(program)
    assert unreadable.failure[0] == "there are no credentials for object storage"
    file.unlink()
    none = asks(program)
    assert none.failure[0] == "there are no credentials for object storage"
    file.write_text(
        f"[default]\nsource_profile = nobodys\nrole_arn = arn:aws:iam::1:role/{SECRET}\n"
    )
    nobodys = asks(program)
    assert nobodys.failure[0] == "there are no credentials for object storage"
    for ran in (wrong, denied, expired, unreadable, none, nobodys):
        assert SECRET not in ran.printed and "AKIA" not in ran.printed
        # Only prepare carries the file to the hosts.
        assert "--tags prepare,weights" in ran.failure[1]["fix"]


def test_a_token_that_no_header_takes_is_not_quoted(
    storage: ObjectStorage, program: Program
) -> None:
    token = f"aws_session_token = first\n {SECRET}\n"
    file = program.directory / "credentials"
    file.write_text(f"[default]\naws_access_key_id = A\naws_secret_access_key = s\n{token}")
    ran = asks(program)
    assert "Invalid header value" in ran.failure[1]["found"]
    assert SECRET not in ran.printed


def test_the_same_content_in_other_parts_is_the_same_revision(
    storage: ObjectStorage, program: Program, tree: Path
) -> None:
    before = asks(program).result
    content, name = (tree / SHARDS[0]).read_bytes(), f"{PREFIX}/{SHARDS[0]}"
    upload = storage.client.create_multipart_upload(Bucket=BUCKET, Key=name)["UploadId"]
    part = {"Bucket": BUCKET, "Key": name, "UploadId": upload, "PartNumber": 1}
    tag = storage.client.upload_part(**part, Body=content)["ETag"]
    storage.client.complete_multipart_upload(
        Bucket=BUCKET,
        Key=name,
        UploadId=upload,
        MultipartUpload={"Parts": [{"ETag": tag, "PartNumber": 1}]},
    )
    after = asks(program).result
    assert [one["etag"] for one in after["files"]] != [one["etag"] for one in before["files"]]
    assert after["revision"] == before["revision"]


def test_what_the_store_does_not_have_is_named(storage: ObjectStorage, program: Program) -> None:
    sentence, details = program.manifest(model="s3://nobodys/x").failure
    assert sentence == "there is no bucket nobodys"
    assert details["where"] == f"{storage.url}, without a proxy"
    sentence, details = program.manifest(model=f"s3://{BUCKET}/team/tin").failure
    assert sentence == f"there is nothing under s3://{BUCKET}/team/tin"
    storage.client.delete_object(Bucket=BUCKET, Key=key(SHARDS[2]))
    sentence, details = asks(program).failure
    assert sentence == f"{URL} lacks files that its SHA256SUMS lists"
    assert details["expected"] == SHARDS[2]
    storage.put(BUCKET, key("SHA256SUMS"), b"no digests\n")
    sentence, details = asks(program).failure
    assert sentence == f"SHA256SUMS of {URL} cannot be read"
    storage.refuse(301, "PermanentRedirect", times=9, path="list-type")
    assert asks(program).failure[1]["fix"] == "set object_storage_region"


def test_an_unreachable_store_is_named_with_its_proxy_and_no_password(
    storage: ObjectStorage, program: Program
) -> None:
    program.variables["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
    sentence, details = asks(program).failure
    assert sentence == f"{URL} cannot be read: the connection to object storage fails"
    assert details["where"] == "http://127.0.0.1:9, without a proxy"
    program.variables["AWS_ENDPOINT_URL"] = "http://store.invalid"
    program.variables["http_proxy"] = "http://ann:secret@127.0.0.1:9"
    ran = asks(program)
    assert ran.failure[1]["where"] == "http://store.invalid, through the proxy http://127.0.0.1:9"
    assert "secret@" not in ran.printed


def test_what_does_not_fit_is_refused_before_it_begins(
    storage: ObjectStorage, program: Program, request_all: dict[str, Any]
) -> None:
    huge = {**request_all["bytes"], SHARDS[0]: 2**60}
    assert (
        program.run({**request_all, "bytes": huge}).failure[0] == f"{URL} does not fit on the disk"
    )
    assert not storage.sent
