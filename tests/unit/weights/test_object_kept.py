"""The file of digests that were found by reading may be damaged, and two may write it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from vllm_ansible.node.weights.programs import write

from ...emulators.object_storage import ObjectStorage
from .conftest import Program
from .objects import BUCKET, asks, key
from .program import PROGRAM


@pytest.fixture
def unrecorded(storage: ObjectStorage) -> ObjectStorage:
    """Return a store where nobody recorded digests."""
    storage.client.delete_object(Bucket=BUCKET, Key=key("SHA256SUMS"))
    return storage


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        '{"config.json": [400, "etag", ',
        "[5]",
        '{"config.json": 5}',
        '{"config.json": []}',
        "\0" * 40,
    ],
)
def test_what_is_damaged_is_read_again(
    unrecorded: ObjectStorage, program: Program, damaged: str
) -> None:
    right = asks(program).result
    kept = program.directory / "kept.json"
    sound = kept.read_text()
    kept.write_text(damaged)
    assert asks(program).result == right
    assert json.loads(kept.read_text()) == json.loads(sound)


def test_a_digest_that_is_none_is_no_digest(unrecorded: ObjectStorage, program: Program) -> None:
    right = asks(program).result
    kept = program.directory / "kept.json"
    known = json.loads(kept.read_text())
    known["config.json"][2] = known["config.json"][2][:-1]
    kept.write_text(json.dumps(known))
    unrecorded.sent.clear()
    assert asks(program).result == right
    assert set(+unrecorded.sent) == {key("config.json")}


TURNS = """
import sys
from object_bucket import Stored
from object_digests import Kept
one, other = Kept(sys.argv[1]), Kept(sys.argv[1])
for turn, name in ((one, "a"), (other, "b"), (one, "c")):
    turn.add(Stored(name, 1, "etag"), "0" * 64)
"""
WRITER = """
import sys
from object_bucket import Stored
from object_digests import Kept
kept = Kept(sys.argv[1])
for number in range(200):
    kept.add(Stored(sys.argv[2] + str(number), 1, "etag"), "0" * 64)
"""


def python(program: Program, text: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a text beside the files of the program."""
    write(str(program.directory / "program"), PROGRAM)
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        env={"PYTHONPATH": str(program.directory / "program")},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_another_cluster_keeps_there_stays(program: Program) -> None:
    kept = program.directory / "kept.json"
    assert python(program, TURNS, kept).communicate(timeout=300)[1] == ""
    assert json.loads(kept.read_text()).keys() == {"a", "b", "c"}
    assert not list(program.directory.glob("kept.json.*")), "parts of it are left"


def test_two_clusters_that_write_at_once_do_not_collide(program: Program) -> None:
    kept = program.directory / "kept.json"
    writers = [python(program, WRITER, kept, name) for name in ("a", "b")]
    assert [one.communicate(timeout=300)[1] for one in writers] == ["", ""]
    assert {"a199", "b199"} & json.loads(kept.read_text()).keys()
