"""The sha256 of each object: as somebody recorded it, or by reading it once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import object_answers
from growing import ShortAnswer
from messages import say
from object_bucket import Bucket, Stored
from patience import ATTEMPTS, TELL_SECONDS, Patience
from words import Failure, gib

SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](?:\./)?(.+)")
SHA256 = re.compile("[0-9a-f]{64}")
READERS = 8


class Kept:
    """Digests found by reading, by name, of objects that have the same length and tag still."""

    def __init__(self, path: str | None) -> None:
        """Read what earlier runs found; without a path nothing is kept."""
        self.path, self._lock = path, threading.Lock()
        self.known = self._read(path) if path else {}

    def find(self, one: Stored) -> str:
        """Return the digest of an object, empty where none is kept."""
        *same, digest = self.known.get(one.name, [None, None, ""])
        return str(digest) if same == [one.bytes, one.etag] else ""

    def add(self, one: Stored, digest: str) -> None:
        """Keep a digest at once: the run may be killed in a moment."""
        with self._lock:
            if self.path:
                self.known |= self._read(self.path)  # of another cluster with this directory
            self.known[one.name] = [one.bytes, one.etag, digest]
            if self.path:
                self._write(self.path)

    def _read(self, path: str) -> dict[str, list[Any]]:
        """Return what the file holds; what is damaged there is found again."""
        with suppress(OSError, ValueError):
            known = json.loads(Path(path).read_text())
            if isinstance(known, dict):
                return {name: entry for name, entry in known.items() if sound(entry)}
        return {}

    def _write(self, path: str) -> None:
        """Replace the file; two that do so at once do not write into the same one."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        partial = f"{path}.{secrets.token_hex(8)}.partial"
        try:
            with open(partial, "x", encoding="utf-8") as file:
                json.dump(self.known, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError:
            Path(partial).unlink(missing_ok=True)
            raise


def sound(entry: Any) -> bool:
    """Return whether something is an entry of a length, a tag and a digest."""
    if not isinstance(entry, list) or list(map(type, entry)) != [int, str, str]:
        return False
    return bool(SHA256.fullmatch(entry[2]))


@dataclass
class Said:
    """How far it is: so much done of a total, where there is one, in a unit, and what is done."""

    done: int
    total: int | None
    unit: str
    words: str


class Digests:
    """What is known of the content of a bucket's objects.

    request: kept, the path of what earlier runs found; reads, whether objects may be read for it.
    """

    def __init__(self, bucket: Bucket, request: Mapping[str, Any]) -> None:
        self.bucket, self.kept = bucket, Kept(request.get("kept"))
        self.reads = bool(request.get("reads", True))
        self.patience = Patience(request.get("attempts", ATTEMPTS), object_answers, self.tell)
        self.said, self._lock = Said(0, None, "objects", "listing"), threading.Lock()

    def tell(self) -> None:
        """Say how far it is, or for what it waits: silence is taken for a hang."""
        said, repeats = self.said, self.patience.repeats
        words = self.patience.asked_to_wait("object storage") or said.words
        words += f", repeated requests: {repeats}" if repeats else ""
        say(progress=[said.done, said.total, said.unit, words])

    def recorded(self, sums: Stored) -> dict[str, str]:
        """Return what SHA256SUMS says, by name, as sha256sum of coreutils writes it."""
        content = bytearray()
        self._read(sums, content.extend, lambda: len(content))
        known = {}
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            said = LINE.fullmatch(line)
            if said:
                known[said.group(2)] = said.group(1).lower()
            elif line.strip() and not line.startswith("#"):
                raise Failure(
                    f"{SUMS} of {self.bucket.url} cannot be read",
                    expected="lines as sha256sum writes them: digest, two spaces, name",
                    found=f"line {number}: {line[:80]}",
                    where=f"{self.bucket.url.rstrip('/')}/{SUMS}",
                    fix="write it anew with sha256sum, or remove it",
                )
        known.pop(SUMS, None)
        return known

    def of_store(self, wanted: list[Stored]) -> dict[str, str]:
        """Return the digests that the store itself keeps, by name."""
        self.said = Said(0, len(wanted), "objects", "asking for their digests")

        def ask(one: Stored) -> str:
            digest = str(self.patience(lambda: self.bucket.sha256(one)))
            self._add(1)
            return digest

        found = self._all(ask, wanted)
        return {name: digest for name, digest in found.items() if digest}

    def of_content(self, wanted: list[Stored]) -> dict[str, str]:
        """Return digests by name, reading each object once and for all; says how far that is."""
        found = {one.name: self.kept.find(one) for one in wanted}
        unread = [one for one in wanted if not found[one.name]]
        if unread and self.reads:
            total = sum(one.bytes for one in unread)
            words = f"reading {gib(total)} once more to hash it: no digests were recorded"
            self.said = Said(0, total, "bytes", words)
            found.update(self._all(self._hashed, unread))
        return {name: digest for name, digest in found.items() if digest}

    def _all(self, find: Callable[[Stored], str], objects: Iterable[Stored]) -> dict[str, str]:
        """Return the digests of several objects that are found at once; the first error ends it."""
        pool = ThreadPoolExecutor(READERS)
        names: dict[Future[str], str] = {pool.submit(find, one): one.name for one in objects}
        left: Collection[Future[str]] = names
        while left:
            ended, left = wait(left, TELL_SECONDS, FIRST_EXCEPTION)
            for error in filter(None, (one.exception() for one in ended)):
                # Those that read now are not waited for: the program ends.
                pool.shutdown(wait=False, cancel_futures=True)
                raise error
            self.tell()
        return {name: future.result() for future, name in names.items()}

    def _hashed(self, one: Stored) -> str:
        """Return the digest of an object by reading it, and keep it."""
        sha256, read = hashlib.sha256(), 0

        def take(data: bytes) -> None:
            nonlocal read
            sha256.update(data)
            read += len(data)
            self._add(len(data))

        self._read(one, take, lambda: read)
        self.kept.add(one, sha256.hexdigest())
        return sha256.hexdigest()

    def _add(self, count: int) -> None:
        with self._lock:
            self.said.done += count

    def _read(self, one: Stored, take: Callable[[bytes], None], have: Callable[[], int]) -> None:
        """Read an object from its beginning to its end, whatever breaks between."""

        def go_on() -> None:
            with self.bucket.answer(one, have()) as (offset, content):
                skip = have() - offset  # the answer may be the whole object
                for data in content:
                    take(data[skip:])
                    skip = max(0, skip - len(data))
            if have() < one.bytes:
                raise ShortAnswer(one.name)

        self.patience(go_on, have)
