"""Play every case under tests/cases against the module the file is named after."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.node.launcher import boot_id

CASES = [
    pytest.param(path.stem, case, id=f"{path.stem}: {case['name']}")
    for path in sorted((Path(__file__).parent / "cases").glob("*.yml"))
    for case in yaml.load(path.read_text(), yaml.CSafeLoader)
]


def filled(value: Any, words: dict[str, str]) -> Any:
    """Put this test's directory, boot and kernel in the places that a case leaves for them."""
    text = json.dumps(value)
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return json.loads(text)


@pytest.mark.parametrize(("module", "case"), CASES)
def test_module(
    run_module: Callable[..., dict[str, Any]], module: str, case: dict[str, Any], tmp_path: Path
) -> None:
    words = {"<tmp>": str(tmp_path), "<boot>": boot_id(), "<kernel>": platform.release()}
    case = filled(case, words)
    for path, content in case.get("files", {}).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        Path(path).write_text(text)
    result = run_module(
        module, case.get("args", {}), case.get("runs", []), check=case.get("check", False)
    )
    assert result | case["result"] == result
    for path, content in case.get("leaves", {}).items():
        found = Path(path).read_text() if Path(path).exists() else None
        assert found == content, path
