"""Complete the models of one host: each file from the nearest peer that has it, or from the hub."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Callable, Optional

from ...failure import Failure
from . import hub as the_hub
from .disk_failure import WEIGHTS, Kept, disk_failure
from .follower import adopt
from .hub import Hub
from .incoming import DiskError, Incoming
from .manifest import File, Manifest
from .receiver import Line, Peer, receive
from .shelf import Shelf

Report = Callable[..., None]
LOOK_SECONDS = 0.5
# What the hub's program says while nothing is to be said.
DOWNLOADING = "downloading"


@dataclass(frozen=True)
class Part:
    """A model that this host completes, and for each file who gets it before: nearest first."""

    manifest: Manifest
    shelf: Shelf
    peers: Mapping[str, Sequence[Peer]]
    kept: Kept = WEIGHTS


class Gathering:
    """Everything that is missing on this host, until it is there.

    hub is None on a host that is not to ask it.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        key: bytes,
        source: str,
        hub: Optional[Hub],
        streams: int,
        rehash: bool = False,
    ) -> None:
        """Take part in the models; rehash: trust nothing that was verified before."""
        self.parts, self.hub, self.streams, self.rehash = parts, hub, streams, rehash
        # What lay here and was wrong, in words.
        self.defects: list[str] = []
        self.line = Line(key, source, self._arrived)
        self._bytes: dict[str, int] = {}
        self._jobs: queue.SimpleQueue[tuple[Part, File]] = queue.SimpleQueue()
        self._left: list[tuple[Part, File]] = []
        self._errors: list[Exception] = []
        self._taking = 0
        self._hub_says = ""
        self._change = threading.Condition()

    def run(self, report: Report) -> None:
        """Complete every model and give it its name.

        Raises Failure or WeightsError for the first thing that cannot be mended here.
        """
        total = sum(part.manifest.bytes for part in self.parts)
        with ExitStack() as held:
            for part in self.parts:
                held.enter_context(
                    part.shelf.tend(lambda: report(None, None, "", "waiting for another run"))
                )
            self._begin()
            while not self._change_within(LOOK_SECONDS):
                report(sum(self._bytes.values()), total, "bytes", self._told())
            if self._errors:
                raise self._errors[0]
            for part in self.parts:
                part.shelf.close(part.manifest)
            report(total, total, "bytes", "verified")

    def _begin(self) -> None:
        """Sort what is missing, and start those who bring it."""
        for part in self.parts:
            stock = part.shelf.stock()
            for file in part.manifest.files:
                if not self.rehash and part.shelf.ready(file, stock):
                    self._bytes[part.shelf.incoming(file)] = file.bytes
                elif part.peers.get(file.name) or part.shelf.unproven(file):
                    self._jobs.put((part, file))
                    self._taking += 1
                else:
                    self._left.append((part, file))
        bringing = [self._from_here_or_peers] * min(self.streams, self._taking)
        self._workers = [
            threading.Thread(target=self._guarded, args=(one,), daemon=True)
            for one in (*bringing, self._from_hub)
        ]
        for worker in self._workers:
            worker.start()

    def _change_within(self, seconds: float) -> bool:
        """Tell whether it is over, waiting a moment."""
        with self._change:
            return self._change.wait_for(
                lambda: bool(self._errors) or (not self._taking and not self._left), seconds
            )

    def _guarded(self, work: Callable[[], None]) -> None:
        """Work, and keep what goes wrong for the one who waits."""
        try:
            work()
        except Exception as error:
            with self._change:
                self._errors.append(_told_of(error, self.parts))
                self._change.notify_all()

    def _from_here_or_peers(self) -> None:
        """Bring file after file; what no peer could send is left to the hub."""
        while True:
            try:
                part, file = self._jobs.get_nowait()
            except queue.Empty:
                return
            came = self._adopted(part, file) or receive(
                part.shelf, file, part.peers.get(file.name, ()), self.line
            )
            with self._change:
                self._left += [] if came else [(part, file)]
                self._taking -= 1
                self._change.notify_all()

    def _adopted(self, part: Part, file: File) -> bool:
        """Prove a file that lies in its place already; one that is wrong is put away and named."""
        path = part.shelf.unproven(file)
        if path is None:
            return False
        if adopt(part.shelf, file, path, self._arrived):
            return True
        self.defects.append(f"{path} was not what {part.manifest.keeper} says it is")
        return False

    def _from_hub(self) -> None:
        """Fetch what is left to the hub, as long as more may come."""
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._left) or not self._taking)
                batch = list(self._left)
            if not batch:
                return
            for part in self.parts:
                files = [file for one, file in batch if one is part]
                if files:
                    self._fetch(part, files)
            with self._change:
                self._left = self._left[len(batch) :]
                self._change.notify_all()

    def _fetch(self, part: Part, files: Sequence[File]) -> None:
        """Fetch files of one model from the hub."""
        if self.hub is None:
            raise Failure(
                f"no peer could send {files[0].name} of {part.manifest.model}",
                expected="a peer that has it, since this host is not one of weights_outside_hosts",
                found="; ".join(self.line.troubles[-3:]) or "no peer has it",
                where=part.shelf.final,
                fix="run the stage weights again; if it stays, see the log of the task weights "
                "on the host that fetches from the hub",
            )
        the_hub.fetch(self.hub, part.manifest, part.shelf, files, self._arrived, self._hub_said)

    def _arrived(self, incoming: Incoming) -> None:
        self._bytes[incoming.path] = incoming.size

    def _hub_said(self, text: str) -> None:
        self._hub_says = "" if text == DOWNLOADING else text

    def _told(self) -> str:
        if self._hub_says:
            return self._hub_says
        return f"last trouble: {self.line.troubles[-1]}" if self.line.troubles else "arriving"


def _told_of(error: Exception, parts: Sequence[Part]) -> Exception:
    """Return an error in words that a person can act on."""
    if isinstance(error, DiskError):
        error = error.args[0]
    if isinstance(error, OSError):
        return disk_failure(error, parts[0].shelf.place, parts[0].kept)
    return error
