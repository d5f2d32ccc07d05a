"""The filter `vllm_arguments`."""

from __future__ import annotations

import layouts
import pytest
from ansible.errors import AnsibleFilterError

vllm_arguments = layouts.FilterModule().filters()["vllm_arguments"]


def test_a_model_and_machines_become_arguments(config: str) -> None:
    assert vllm_arguments(config, "1x8 H200") == ["--tensor-parallel-size", "8"]
    words = vllm_arguments(config, "1x8 H200", concurrency=256)
    assert "--enable-expert-parallel" in words
    words = vllm_arguments(config, "2x8 H100-80", concurrency=8)
    assert words[2:4] == ["--pipeline-parallel-size", "2"]


@pytest.mark.parametrize(("line", "more"), [("1x8 X", {}), ("1x8 H200", {"speed": 9})])
def test_what_makes_no_sense_is_ansibles_error(
    config: str, line: str, more: dict[str, int]
) -> None:
    with pytest.raises(AnsibleFilterError, match="vllm_arguments: "):
        vllm_arguments(config, line, **more)
