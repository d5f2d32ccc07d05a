"""Fetch the files of a model, several at once, and say how far that is."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

from answers import ShortAnswer, status_of
from folder import Folder, size_of
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from messages import say
from patience import ATTEMPTS, Patience
from plain import other_size, stream
from words import Failure, route
from xet import Xet


class Fetch:
    """One run of downloads into one directory."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.folder = Folder(request)
        self.workers, self.stall = int(request["workers"]), float(request["stall_seconds"])
        self.patience = Patience(request.get("attempts", ATTEMPTS))
        self.xet = Xet(self.folder, self.workers, self.stall, self.stopped)
        self.waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.errors: list[BaseException] = []

    def stopped(self) -> bool:
        """Return whether a file failed, so that none is to go on."""
        return bool(self.errors)

    def run(self) -> dict[str, Any]:
        """Download what is missing, and say every second how far that is."""
        folder = self.folder
        folder.directory.mkdir(parents=True, exist_ok=True)
        self.xet.clean()
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
        # What they hold goes to the disk, so that the next run has it; some may wait for the hub.
        for thread in threads:
            thread.join(max(0.0, looked + 2 - time.monotonic()) if self.errors else None)
        self.tell()
        if self.errors:
            raise self.errors[0]
        self.xet.clean()
        return {"revision": folder.commit, "files": len(folder.sizes), "bytes": folder.total()}

    def tell(self) -> None:
        """Say how much is on the disk."""
        pause, text = self.patience.until - time.monotonic(), "downloading"
        if pause > 0:
            text = f"the hub asks to wait {pause:.0f} s"
        elif self.xet.gave_nothing:
            text = "downloading over plain HTTPS, since xet gave nothing"
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
        """Fetch one file: over xet where the hub has it there, or else over plain HTTPS."""
        folder, size = self.folder, self.folder.sizes[name]
        url = hf_hub_url(folder.model, name, revision=folder.commit)
        found = self.patience(lambda: get_hf_file_metadata(url))
        if found.commit_hash != folder.commit or not found.etag:
            raise Failure(
                "what answers is not the model hub",
                expected=f"the commit {folder.commit}",
                found=f"the commit {found.commit_hash}" if found.commit_hash else "no commit",
                where=route(),
                fix="check HF_ENDPOINT, and whether a proxy answers in the hub's place",
            )
        if found.size not in (None, size):
            raise other_size(name, size, found.size)
        part = folder.part(name, found.etag)
        for other in folder.parts(name):
            if other != part:
                other.unlink()
        if folder.whole(name, found.etag):
            folder.keep(name, folder.directory / name, found.etag)
            return
        part.parent.mkdir(parents=True, exist_ok=True)
        # What was begun over plain HTTPS goes on there: xet begins anew.
        if (
            self.xet.usable
            and found.xet_file_data
            and not part.exists()
            and self.xet.fetch(name, found.etag)
        ):
            return
        try:
            self.patience(
                lambda: stream(name, size, url, part, self.stall, self.stopped),
                lambda: size_of(part),
            )
        except (ShortAnswer, HfHubHTTPError) as error:
            if status_of(error) not in (0, 416):
                raise
            raise other_size(name, size, size_of(part)) from error
        if not self.errors:
            folder.keep(name, part, found.etag)
