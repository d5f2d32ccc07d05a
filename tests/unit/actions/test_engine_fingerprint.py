"""A server is asked which start it is unless this run has seen it already; a real play."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_only_the_start_that_is_known_is_not_asked(play: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k\n")
    server = {
        "url": "http://127.0.0.1:9",
        "api_key_file": str(tmp_path / "key"),
        "model": "m",
        "cluster": "c",
        "cluster_dir": str(tmp_path),
        "process": "m-serve",
        "timeout_seconds": 1,
    }
    given = {
        "known": {"known": "start-1", "seen": "start-1"},
        "restarted": {"known": "start-1", "seen": "start-2"},
        "unseen": {"known": "start-1", "seen": ""},
        "never asked": {"known": "", "seen": ""},
    }
    played = play(
        [
            {"name": name, "engine_fingerprint": {**server, **more}, "register": "found"}
            for name, more in given.items()
        ]
    )
    known = played["known"]
    assert (known["asked"], known["instance"], known["changed"]) == (False, "start-1", False)
    # Nobody listens there: whoever is asked does not answer.
    for name in ("restarted", "unseen", "never asked"):
        assert played[name]["asked"] and played[name]["refused"], name
