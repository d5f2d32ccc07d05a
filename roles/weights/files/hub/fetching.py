"""Fetch the files of a model, several at once, and say how far that is."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from folder import Folder, size_of
from growing import Answer, grow, other_size
from messages import say
from patience import Patience


class Source(Protocol):
    """Where the files of one model are outside."""

    name: str
    patience: Patience

    def clean(self) -> None:
        """Remove what an earlier run left that nobody can go on with."""

    def mark(self, name: str) -> str:
        """Return what tells this content of a file from another; raise where it is another."""

    def brought(self, name: str, mark: str) -> bool:
        """Return whether a file came in the source's own way, whole and in its place."""

    def answer(self, name: str, have: int) -> AbstractContextManager[Answer]:
        """Ask for a file from an offset on."""

    def route(self) -> str:
        """Return its address and the proxy before it."""

    def words(self) -> str:
        """Return what happens while nothing waits."""


class Fetch:
    """One run of downloads into one directory."""

    def __init__(
        self,
        request: Mapping[str, Any],
        source: Callable[[Mapping[str, Any], Folder, Callable[[], bool]], Source],
    ) -> None:
        self.folder, self.workers = Folder(request), int(request["workers"])
        self.waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.errors: list[BaseException] = []
        self.source = source(request, self.folder, self.stopped)

    def stopped(self) -> bool:
        """Return whether a file failed, so that none is to go on."""
        return bool(self.errors)

    def run(self) -> dict[str, Any]:
        """Download what is missing, and say every second how far that is."""
        folder = self.folder
        folder.directory.mkdir(parents=True, exist_ok=True)
        self.source.clean()
        missing = []
        for name in folder.sizes:
            if folder.whole(name):
                say(file=name)
            else:
                missing.append(name)
                self.waiting.put(name)
        folder.preflight(missing)
        number = max(1, min(self.workers, len(missing)))
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        looked = time.monotonic()
        while not self.errors and any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            if time.monotonic() - looked >= 1:
                looked = time.monotonic()
                self.tell()
        # What they hold goes to the disk, so that the next run has it; some may be waiting.
        for thread in threads:
            thread.join(max(0.0, looked + 2 - time.monotonic()) if self.errors else None)
        self.tell()
        if self.errors:
            raise self.errors[0]
        self.source.clean()
        return {"revision": folder.commit, "files": len(folder.sizes), "bytes": folder.total()}

    def tell(self) -> None:
        """Say how much is on the disk."""
        text = self.source.patience.asked_to_wait(self.source.name) or self.source.words()
        done = sum(map(self.folder.on_disk, self.folder.sizes))
        say(progress=[done, self.folder.total(), "bytes", text])

    def work(self) -> None:
        """Fetch one file after another, in the wanted order, until one fails."""
        while not self.errors:
            try:
                name = self.waiting.get_nowait()
                self.fetch(name)
                if not self.errors:
                    say(file=name)
            except queue.Empty:
                return
            except Exception as error:
                self.errors.append(error)

    def fetch(self, name: str) -> None:
        """Fetch one file, in the source's own way or by appending to its part."""
        folder, source, size = self.folder, self.source, self.folder.sizes[name]
        mark = source.mark(name)
        part = folder.part(name, mark)
        for other in folder.parts(name):
            if other != part:
                other.unlink()
        if folder.whole(name, mark):
            folder.keep(name, folder.directory / name, mark)
            return
        part.parent.mkdir(parents=True, exist_ok=True)
        # What was begun by appending goes on so: any other way begins anew.
        if not part.exists() and source.brought(name, mark):
            return

        def answer(have: int) -> AbstractContextManager[Answer]:
            return source.answer(name, have)

        try:
            source.patience(
                lambda: grow(name, size, part, answer, self.stopped, source.route()),
                lambda: size_of(part),
            )
        except Exception as error:
            if not source.patience.answers.ends_early(error):
                raise
            raise other_size(name, size, size_of(part), source.route()) from error
        if not self.errors:
            folder.keep(name, part, mark)
