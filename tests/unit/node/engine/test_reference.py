"""Numbers that another program computes, detached, once for each digest of weights."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.engine import reference
from vllm_ansible.node.engine.fingerprint import PROMPTS
from vllm_ansible.node.process import background
from vllm_ansible.node.process.family import until

ONE: dict[str, Any] = {"engine": "chat", "weights": "0123456789abcdef", "place": "/models/m"}
# Answers with what it was given, and counts how often it ran.
PROGRAM = """
import json, os, sys
with open({count!r}, "a") as count:
    count.write("x")
texts = json.loads(sys.argv[2])
told = {{"tokens": [1], "logprobs": [-1.0], "text": texts[0], "nice": os.nice(0)}}
print("a warning of a library")
print(json.dumps({{"result": {{"prompts": [told], "place": sys.argv[1]}}}}))
"""


def test_it_is_computed_once_with_a_low_priority(tmp_path: Path) -> None:
    tasks, count = str(tmp_path / "tasks"), tmp_path / "count"
    script = PROGRAM.format(count=str(count))
    for _ in range(2):
        reference.start(tasks, ONE, sys.executable, script, None, retry=True)
        found = reference.found(tasks, ONE["weights"], 60)
    assert count.read_text() == "x"
    assert found["place"] == "/models/m"
    (prompt,) = found["prompts"]
    assert prompt["text"] == PROMPTS[0] and prompt["nice"] == min(19, os.nice(0) + reference.NICE)


def test_what_had_to_be_skipped_is_tried_again_by_the_next_start(tmp_path: Path) -> None:
    tasks, count = str(tmp_path / "tasks"), tmp_path / "count"
    script = (
        f"open({str(count)!r}, 'a').write('x')\n"
        'print(\'{"result": {"skipped": "no transformers"}}\')'
    )
    for retry, ran in ((True, "x"), (False, "x"), (True, "xx")):
        reference.start(tasks, ONE, sys.executable, script, None, retry=retry)
        assert reference.found(tasks, ONE["weights"], 60) == {"skipped": "no transformers"}
        assert count.read_text() == ran


def test_a_program_that_fails_gives_its_last_words(tmp_path: Path) -> None:
    tasks = str(tmp_path)
    script = "import sys; print('first', file=sys.stderr); sys.exit('no memory left')"
    reference.start(tasks, ONE, sys.executable, script, None, retry=False)
    told = reference.found(tasks, ONE["weights"], 60)
    assert told["skipped"].startswith("transformers computed nothing: ")
    assert told["skipped"].endswith("no memory left")


def test_what_computes_is_stopped_and_nothing_else_is(tmp_path: Path) -> None:
    tasks = str(tmp_path)
    pid = tmp_path / "pid"
    script = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    assert reference.stop(tasks) == []
    reference.start(tasks, ONE, sys.executable, script, None, retry=False)
    background.start(tasks, "other", background.Command(("sleep", "600")))
    name = reference.task_name(ONE["weights"])
    try:
        assert until(lambda: pid.exists() and bool(pid.read_text()), 30)
        assert reference.stop(tasks, check=True) == [name]
        assert background.look(tasks, name)["state"] == "running"
        assert reference.stop(tasks) == [name]
        assert background.look(tasks, name)["state"] != "running"
        assert not Path(f"/proc/{pid.read_text()}").exists()
        assert background.look(tasks, "other")["state"] == "running"
        assert reference.stop(tasks) == []
    finally:
        background.stop(tasks, name)
        background.stop(tasks, "other")


def test_one_that_takes_too_long_is_said_and_goes_on(tmp_path: Path) -> None:
    tasks = str(tmp_path)
    reference.start(tasks, ONE, sys.executable, "import time; time.sleep(600)", None, retry=False)
    try:
        told = reference.found(tasks, ONE["weights"], 0.1)
        assert told["skipped"].startswith("transformers still computes")
        assert background.look(tasks, reference.task_name(ONE["weights"]))["state"] == "running"
    finally:
        background.stop(tasks, reference.task_name(ONE["weights"]))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ((), "there is no"),
        (("bin/python",), "is in an image"),
        (("bin/python", "pyvenv.cfg"), ""),
    ],
)
def test_only_an_environment_of_its_own_computes(
    made: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for name in made:
        (tmp_path / name).touch()
    told = reference.unfit_python(str(tmp_path / "bin/python"))
    assert why in told and bool(told) == bool(why)
    assert reference.unfit_python("") == "no environment is installed"


def test_what_removes_a_container_is_given_a_moment_and_nothing_else_is(tmp_path: Path) -> None:
    """A client such as podman's ends before conmon has removed its container."""
    removed, other = tmp_path / "removed", tmp_path / "other"
    tasks = str(tmp_path / "tasks")
    conmon = tmp_path / "conmon"
    conmon.symlink_to("/bin/sh")
    started = tmp_path / "started"
    program = f"{conmon} -c ': > {started}; sleep 1; : > {removed}; :' & "
    # Its sleep may be killed a moment before the shell around it.
    program += f"(sleep 30 && : > {other}) & until [ -e {started} ]; do sleep 0.05; done; exit 1"
    background.start(tasks, "tool", background.Command(("sh", "-c", program)))
    try:
        assert until(lambda: background.look(tasks, "tool")["state"] == "failed", 20)
        assert removed.exists() and not other.exists()
    finally:
        background.stop(tasks, "tool")
