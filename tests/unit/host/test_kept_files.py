"""The controller hands out no wheel that is not the one that was built."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.host.kept_files import KeptError, KeptFiles

KEY = "k" * 64
CONTENT = b"a wheel"
RECORD: dict[str, Any] = {
    "key": KEY,
    "file": "answer-1.0-py3-none-any.whl",
    "sha256": hashlib.sha256(CONTENT).hexdigest(),
}


@pytest.fixture
def cache(tmp_path: Path) -> KeptFiles:
    return KeptFiles(tmp_path / "wheels")


def bring(path: Path) -> None:
    path.write_bytes(CONTENT)


def test_what_was_kept_is_found_with_its_record(cache: KeptFiles) -> None:
    assert cache.look(KEY) == (None, "")
    cache.keep(KEY, RECORD, bring)
    assert cache.look(KEY) == (RECORD, "")
    assert sorted(path.name for path in cache.root.iterdir()) == [".lock", KEY]


def test_what_arrives_otherwise_is_refused_and_leaves_what_was_there(cache: KeptFiles) -> None:
    cache.keep(KEY, RECORD, bring)
    with pytest.raises(KeptError, match="SHA-256"):
        cache.keep(KEY, RECORD, lambda path: path.write_bytes(b"another") and None)
    assert cache.look(KEY)[0] == RECORD
    assert sorted(path.name for path in cache.root.iterdir()) == [".lock", KEY]


@pytest.mark.parametrize("fault", ["changed", "lost", "unreadable", "of another key", "no mapping"])
def test_damage_is_told_and_mended_by_keeping_it_again(cache: KeptFiles, fault: str) -> None:
    cache.keep(KEY, RECORD, bring)
    wheel, record = cache.place(KEY) / RECORD["file"], cache.place(KEY) / "wheel.json"
    if fault == "changed":
        wheel.write_bytes(b"a wheeL")
    elif fault == "lost":
        wheel.unlink()
    else:
        other = {"of another key": {**RECORD, "key": "l"}, "no mapping": []}
        record.write_text(json.dumps(other[fault]) if fault in other else "{")
    found, wrong = cache.look(KEY)
    assert found is None and str(cache.place(KEY)) in wrong
    cache.keep(KEY, RECORD, bring)
    assert cache.look(KEY) == (RECORD, "")


def test_a_record_names_no_file_outside_its_folder(cache: KeptFiles) -> None:
    cache.keep(KEY, {**RECORD, "file": "../../answer.whl"}, bring)
    assert (cache.place(KEY) / "answer.whl").exists()
