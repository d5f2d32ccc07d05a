"""The document of the preflight names every check, in no other words than the checks' own names."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_ansible.verify.preflight import judge

DOCUMENT = Path(__file__).parents[4] / "docs/preflight.md"


def test_every_check_has_one_row_in_its_document_and_no_row_is_of_none() -> None:
    table = DOCUMENT.read_text().partition("## Checks")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(named) == sorted(check.id for check in judge.CHECKS)
