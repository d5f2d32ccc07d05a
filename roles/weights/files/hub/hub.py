"""The model hub as a source: what it lists, what it says of each file, how its files come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import answers
import plain
from explaining import explain
from folder import Folder
from growing import Answer, other_size
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from listing import manifest
from patience import ATTEMPTS, Patience
from words import Failure
from xet import Xet

__all__ = ["Files", "explain", "manifest"]


class Files:
    """The files of one commit on the hub."""

    name = "the hub"

    def __init__(
        self, request: Mapping[str, Any], folder: Folder, stopped: Callable[[], bool]
    ) -> None:
        self.folder, self.stall = folder, float(request["stall_seconds"])
        self.patience = Patience(request.get("attempts", ATTEMPTS), answers)
        self.xet = Xet(folder, int(request["workers"]), self.stall, stopped)
        self.over_xet: set[str] = set()

    def clean(self) -> None:
        """Remove what downloads over xet left."""
        self.xet.clean()

    def mark(self, name: str) -> str:
        """Return the digest of a file by the hub's own record; refuse another commit or size."""
        folder, url = self.folder, self.url(name)
        found = self.patience(lambda: get_hf_file_metadata(url))
        if found.commit_hash != folder.commit or not found.etag:
            raise Failure(
                "what answers is not the model hub",
                expected=f"the commit {folder.commit}",
                found=f"the commit {found.commit_hash}" if found.commit_hash else "no commit",
                where=self.route(),
                fix="check HF_ENDPOINT, and whether a proxy answers in the hub's place",
            )
        if found.size not in (None, folder.sizes[name]):
            raise other_size(name, folder.sizes[name], found.size, self.route())
        if found.xet_file_data:
            self.over_xet.add(name)
        return str(found.etag)

    def brought(self, name: str, mark: str) -> bool:
        """Return whether a file came over xet."""
        return self.xet.usable and name in self.over_xet and self.xet.fetch(name, mark)

    def answer(self, name: str, have: int) -> AbstractContextManager[Answer]:
        """Ask for a file over plain HTTPS, from an offset on."""
        return plain.answer(self.url(name), have, self.stall)

    def url(self, name: str) -> str:
        """Return the address of a file."""
        return str(hf_hub_url(self.folder.model, name, revision=self.folder.commit))

    def route(self) -> str:
        """Return the hub's address and the proxy before it."""
        return answers.route()

    def words(self) -> str:
        """Return what happens while nothing waits."""
        if self.xet.gave_nothing:
            return "downloading over plain HTTPS, since xet gave nothing"
        return "downloading"
