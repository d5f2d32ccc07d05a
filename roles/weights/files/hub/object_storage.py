"""Object storage as a source: what a prefix holds, and how its objects come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import object_answers
from choosing import chosen
from folder import Folder
from growing import Answer
from object_bucket import Bucket, Stored, route
from object_digests import SUMS, Digests
from object_explaining import explain
from patience import ATTEMPTS, Patience
from words import Failure

__all__ = ["Files", "explain", "manifest"]


def manifest(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a revision, the wanted files with sizes and digests, and what nobody recorded.

    The revision is a digest over names, lengths and digests: 40 digits, as a commit of the hub has.
    Tags are left out: the same content that was uploaded in other parts has another one.
    """
    bucket = Bucket(request)
    digests = Digests(bucket, request)
    there = {one.name: one for one in digests.patience(bucket.objects)}
    if not there:
        raise Failure(
            f"there is nothing under {bucket.url}",
            expected=f"objects whose names begin with {bucket.prefix}" if bucket.prefix else "any",
            found="none",
            where=f"the bucket {bucket.bucket}, {route()}",
            fix="check the spelling of the prefix",
        )
    sums = there.pop(SUMS, None)
    known = digests.recorded(sums) if sums else {}
    names = chosen(sorted(there.keys() | known.keys()), request, route())
    absent = [name for name in names if name not in there]
    if absent:
        raise Failure(
            f"{bucket.url} lacks files that its {SUMS} lists",
            expected=", ".join(absent[:8]),
            found=f"{len(there)} other objects",
            where=f"the bucket {bucket.bucket}, {route()}",
            fix=f"upload what is missing, or write {SUMS} anew",
        )
    wanted = [there[name] for name in names]
    known |= digests.of_store([one for one in wanted if one.name not in known])
    read = digests.of_content([one for one in wanted if one.name not in known])
    files = [described(one, known.get(one.name) or read.get(one.name)) for one in wanted]
    # What nobody has read yet, in check mode, is known by its tag alone.
    shape = [[one["name"], one["bytes"], one["sha256"] or one["etag"]] for one in files]
    return {
        "revision": hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:40],
        "files": files,
        "read": sum(there[name].bytes for name in read),
    }


def described(one: Stored, sha256: str | None) -> dict[str, Any]:
    """Return an object as manifests list files."""
    told = {"name": one.name, "bytes": one.bytes, "sha256": sha256}
    return {**told, "git": None, "etag": one.etag}


class Files:
    """The files of one model in object storage."""

    name = "object storage"

    def __init__(
        self, request: Mapping[str, Any], folder: Folder, stopped: Callable[[], bool]
    ) -> None:
        self.sizes, self.etags = folder.sizes, request["etags"]
        self.digests = request["digests"]
        self.bucket = Bucket(request)
        self.patience = Patience(request.get("attempts", ATTEMPTS), object_answers)

    def clean(self) -> None:
        """Remove nothing: every part can be gone on with."""

    def mark(self, name: str) -> str:
        """Return the digest of a file."""
        return str(self.digests[name])

    def brought(self, name: str, mark: str) -> bool:
        """Return False: there is no other way."""
        return False

    @contextmanager
    def answer(self, name: str, have: int) -> Iterator[Answer]:
        """Ask for a file from an offset on."""
        with self.bucket.answer(Stored(name, self.sizes[name], self.etags[name]), have) as found:
            self.patience.answered = True  # what breaks from here on is a bad moment
            yield found

    def route(self) -> str:
        """Return the store's address and the proxy before it."""
        return route()

    def words(self) -> str:
        """Return what happens while nothing waits."""
        return "downloading"
