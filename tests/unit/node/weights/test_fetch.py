"""What a model's making says of itself, which is judged as progress by whoever waits for it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.weights import fetch
from vllm_ansible.node.weights.models import Model

MODEL = Model("random", "llama")
# Computes, and writes nothing, until it is told to end; not for ever where nobody does.
COMPUTES = """
import os, sys, time
end = sys.argv[-1] + "/../end"
while not os.path.exists(end):
    assert time.process_time() < 20, "it has not moved"
"""
# Writes a byte, and waits for a writer that never comes before it is told to end.
HANGS = """
import sys
open(sys.argv[-1] + "/begun", "w").write("x")
open(sys.argv[-1] + "/../end").read()
"""


def made(directory: Path, script: str, report: Any) -> None:
    """Make a model that is none: the script is all of it."""
    wanted = {
        "models_dir": str(directory),
        "python": sys.executable,
        "environment": {},
        "scripts": {"random_model": script},
    }
    with pytest.raises(Exception, match=r"has no config\.json"):
        fetch.fetch(MODEL, wanted, report)


def test_a_conversion_that_computes_and_writes_nothing_moves(tmp_path: Path) -> None:
    written: set[int] = set()
    worked: set[str] = set()

    def report(done: int, _total: object, _unit: str, text: str) -> None:
        written.add(done)
        worked.update(re.findall(r"(\d+) s of work", text))
        if len(worked) > 2:
            (tmp_path / "end").touch()

    made(tmp_path, COMPUTES, report)
    assert written == {0}
    assert len(worked) > 2


def test_a_conversion_that_hangs_does_not_move(tmp_path: Path) -> None:
    end, said = tmp_path / "end", []
    os.mkfifo(end)

    def report(*progress: Any) -> None:
        said.append(progress)
        if [one[0] for one in said].count(1) == 5:
            # It waits by now, and ends with this.
            end.write_text("")

    made(tmp_path, HANGS, report)
    looks = [one for one in said if one[0] == 1]
    assert len(set(looks[2:5])) == 1
