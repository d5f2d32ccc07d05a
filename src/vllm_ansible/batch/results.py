"""The file of answers: one JSON object a line, kept as it comes, found again after any end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from vllm_ansible.problem import PlanError, Problem

# What each line of answers begins with.
BEGINNING = b'{"tag": '


class Unnoted(Exception):
    """It could not be noted that a prompt is about to be sent; error says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Results:
    """The answers in a file, and beside it, in `<file>.sent`, what was sent.

    A line of the second is written before a request goes, so that it is known also of a run that
    was killed how often each prompt has been sent. It goes once every prompt is answered.
    digests: of the prompts that this run is about, by tag; what the file holds of others, or of
    prompts that have changed, is a PlanError. Use it as a context; one run at a time has the file.
    """

    def __init__(self, path: Path, digests: Mapping[str, str]) -> None:
        self.path = path
        self.journal = path.with_name(f"{path.name}.sent")
        self._digests = digests
        self.answered: set[str] = set()
        self._sent: Counter[str] = Counter()
        self._pending: list[bytes] = []
        self._lock = asyncio.Lock()

    def __enter__(self) -> Results:
        """Take over what earlier runs have left."""
        try:
            self._sent_file = self._locked()
            self._file = self.path.open("a+b")
            # Nothing is touched before all of it has turned out to be ours.
            answers, sent = self._answers(), self._journal()
            _cut(self._file, answers)
            _cut(self._sent_file, sent)
        except OSError as error:
            raise PlanError(Problem(f"{error.filename or self.path}: {error.strerror}")) from error
        return self

    def __exit__(self, *_: object) -> None:
        """Keep what was about to be kept when the run ended."""
        self._append(b"".join(self._pending))
        self._file.close()
        self._sent_file.close()

    def sending(self, tag: str) -> None:
        """Note that a prompt is about to be sent."""
        self._sent[tag] += 1
        line = json.dumps(tag).encode() + b"\n"
        try:
            # Survives the end of this process; that of the machine may take the last lines.
            while line:
                line = line[os.write(self._sent_file.fileno(), line) :]
        except OSError as error:
            # As an OSError it would be taken for one of the connection that is about to be used.
            raise Unnoted(error) from error

    def lacks(self, tag: str, digest: str) -> bool:
        """Tell whether a prompt has no answer yet; refuse one that this run is not about."""
        if self._digests.get(tag) == digest:
            return tag not in self.answered
        found = "asks something else" if tag in self._digests else "is new"
        raise PlanError(
            Problem(
                "the prompts have changed while they were sent",
                expected="the prompts that were there when the run began",
                found=f"{tag!r}, which {found}",
                fix="the same command again, once the file stays as it is",
            )
        )

    def sent(self, tag: str) -> int:
        """Return how often a prompt has been sent, in this run and in those before it."""
        return self._sent[tag]

    async def add(self, record: Mapping[str, Any]) -> None:
        """Keep what became of one prompt; it is on the disk when this returns."""
        self._pending.append(_line(record))
        async with self._lock:
            # Whoever had the lock may have written this one with its own.
            if self._pending:
                lines, self._pending = self._pending, []
                # Goes on when the run is ended: what has left the list is written.
                writing = asyncio.get_running_loop().run_in_executor(
                    None, self._append, b"".join(lines)
                )
                # Where nobody waits for it any more, the end of the run meets its error again.
                writing.add_done_callback(lambda done: done.exception())
                await asyncio.shield(writing)
        if record["ok"]:
            self.answered.add(record["tag"])

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what is kept, the last of each tag, in the order of the prompts."""
        places = {record["tag"]: place for place, record in self._kept()}
        with self.path.open("rb") as file:
            for tag in self._digests:
                if tag in places:
                    file.seek(places[tag])
                    yield json.loads(file.readline())

    def finish(self) -> None:
        """Once every prompt is answered: one line for each, in their order, and no journal."""
        if len(self.answered) < len(self._digests):
            return
        # A link stays one: the file it leads to is the one that is rewritten.
        path = self.path.resolve()
        draft = path.with_name(f"{path.name}.new")
        with draft.open("wb") as file:
            # Who may read the answers is not for a rewrite to change.
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            for record in self.records():
                file.write(_line(record))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        self.journal.unlink(missing_ok=True)

    def _append(self, lines: bytes) -> None:
        self._file.write(lines)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _locked(self) -> BinaryIO:
        """Open the journal, unless another run has it."""
        file = self.journal.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise PlanError(
                Problem(
                    "another run writes these answers",
                    expected="one run for a file of answers",
                    found="its lock is held",
                    where=str(self.journal),
                    fix="wait for it, or give another --output",
                )
            ) from None
        if not _is(file, self.journal):
            # The run that had it has just ended and removed it.
            file.close()
            return self._locked()
        return file

    def _answers(self) -> int:
        """Take over the answers of earlier runs; return how many bytes of the file they are."""
        end = 0
        for place, record in self._kept():
            self._check(record)
            tag = record["tag"]
            self._sent[tag] = max(self._sent[tag], record["sent"])
            if record["ok"]:
                self.answered.add(tag)
            end = place + record["bytes"]
        self._file.seek(end)
        rest = self._file.read(len(BEGINNING))
        # Else it is somebody's.
        if rest and not (rest.startswith(BEGINNING) or BEGINNING.startswith(rest)):
            raise self._foreign(f"{rest!r} at byte {end}")
        return end

    def _journal(self) -> int:
        """Take over what earlier runs have sent; return how many bytes of the file say so."""
        found: Counter[str] = Counter()
        end = 0
        self._sent_file.seek(0)
        for line in self._sent_file:
            if not line.endswith(b"\n") and line.startswith(b'"'):
                break
            try:
                found[_text(json.loads(line))] += 1
            except (TypeError, ValueError) as error:
                raise self._foreign(f"{line[:80]!r} in {self.journal}") from error
            end += len(line)
        self._sent |= found
        return end

    def _kept(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield place and record of each whole line, its length among the record's values."""
        with self.path.open("rb") as file:
            place = 0
            for number, line in enumerate(file, 1):
                try:
                    record = json.loads(line)
                    record["tag"], record["ok"], record["sent"], record["digest"]
                except (LookupError, TypeError, ValueError) as error:
                    # A killed run leaves the beginning of a line, which is no JSON yet.
                    if isinstance(error, ValueError) and not line.endswith(b"\n"):
                        return
                    raise self._foreign(f"line {number}: {line[:80]!r}") from error
                yield place, {**record, "bytes": len(line)}
                place += len(line)

    def _check(self, record: Mapping[str, Any]) -> None:
        tag = record["tag"]
        if tag not in self._digests:
            raise self._foreign(f"an answer to {tag!r}, which is not among the prompts")
        if record["digest"] != self._digests[tag]:
            raise self._foreign(
                f"an answer to {tag!r}, which asked something else or another model"
            )

    def _foreign(self, found: str) -> PlanError:
        return PlanError(
            Problem(
                "the file holds something else than answers to these prompts",
                expected="what an earlier run with the same prompts has left, or no file",
                found=found,
                where=str(self.path),
                fix="give another --output",
            )
        )


def _line(record: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can say and UTF-8 cannot.
        return json.dumps(record).encode() + b"\n"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a tag")
    return value


def _is(file: BinaryIO, path: Path) -> bool:
    """Tell whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _cut(file: BinaryIO, end: int) -> None:
    """Remove what a killed run has not finished, so that the next line begins a line."""
    file.truncate(end)
    file.seek(max(0, end - 1))
    if end and file.read(1) != b"\n":
        file.write(b"\n")
