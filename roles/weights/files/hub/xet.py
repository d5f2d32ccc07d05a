"""One file over xet: the library downloads, in a process of its own.

Its threads can be stopped in no other way.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from folder import Folder, bytes_under, size_of
from huggingface_hub import constants

PLACE = ".cache/xet"
CONNECTIONS = 64  # over all files at once
BUFFERS = 2 * 2**30  # bytes, over all files at once


class Xet:
    """Downloads over xet into one folder, until one gives nothing.

    Each takes the share of one of so many workers, and is ended after stall seconds in which no
    byte came, or once stopped says so.
    """

    def __init__(
        self, folder: Folder, workers: int, stall: float, stopped: Callable[[], bool]
    ) -> None:
        self.folder, self.workers, self.stall, self.stopped = folder, workers, stall, stopped
        self.place = folder.directory / PLACE
        self.usable = not constants.HF_HUB_DISABLE_XET and bool(importlib.util.find_spec("hf_xet"))
        self.gave_nothing = False

    def clean(self) -> None:
        """Remove what downloads left: nobody can go on with it."""
        shutil.rmtree(self.place, ignore_errors=True)

    def fetch(self, name: str, etag: str) -> bool:
        """Return whether one file came over xet; where it does not, nothing else is tried so."""
        folder = self.folder
        aside = self.place / folder.part(name, etag).name
        folder.aside[name] = aside
        with self.download(name, aside) as child:
            moved, size = time.monotonic(), 0
            while child.poll() is None:
                time.sleep(0.1)
                now = bytes_under(aside)
                if now != size:
                    moved, size = time.monotonic(), now
                if self.stopped() or time.monotonic() - moved > self.stall:
                    child.kill()
        done = child.returncode == 0 and size_of(aside / name) == folder.sizes[name]
        if done:
            folder.keep(name, aside / name, etag)
        elif not self.stopped():
            self.usable, self.gave_nothing = False, True
        del folder.aside[name]
        shutil.rmtree(aside, ignore_errors=True)
        return done

    def download(self, name: str, aside: Path) -> subprocess.Popen[bytes]:
        """Start the library on one file."""
        request = {
            "repo_id": self.folder.model,
            "revision": self.folder.commit,
            "filename": name,
            "local_dir": str(aside),
        }
        program = str(Path(__file__).with_name("library_download.py"))
        return subprocess.Popen(  # noqa: S603  argv built here, no shell
            [sys.executable, program, json.dumps(request)],
            env=self.environment(),
            stdin=subprocess.PIPE,  # which closes when this process ends, however it does
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of one download: its share, unless somebody set more."""
        return {
            # A cache of pieces would put everything on the disk twice.
            "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",
            "HF_XET_CLIENT_AC_MAX_DOWNLOAD_CONCURRENCY": str(max(4, CONNECTIONS // self.workers)),
            "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_LIMIT": str(max(2**28, BUFFERS // self.workers)),
            "HF_XET_CACHE": str(self.place / "cache"),
            **os.environ,
        }
