"""What roles and playbooks ask about who gives hosts is answered, for each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from filter_plugins.giver_filters import giver_of
from vllm_ansible.provision.giver import giver

ROOT = Path(__file__).parents[3]
ASKED = re.compile(r"giver_of\)\.(\w+)")


def asked() -> dict[str, str]:
    """Return what is asked for, and a file that does."""
    files = [one for room in ("roles", "playbooks") for one in (ROOT / room).rglob("*.yml")]
    return {
        name: str(one.relative_to(ROOT))
        for one in files
        for name in ASKED.findall(one.read_text("utf-8"))
    }


@pytest.mark.parametrize("name", ["", "runpod", "lambda", "aws", "slurm"])
def test_what_roles_ask_is_answered(name: str) -> None:
    """Else the task fails on every host, whoever gives it."""
    known, wanted = giver_of(name), asked()
    assert len(wanted) >= 5
    assert {one: where for one, where in wanted.items() if one not in known} == {}
    assert known["limits"] == giver(name).limits
