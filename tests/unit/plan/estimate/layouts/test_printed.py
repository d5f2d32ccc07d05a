"""What engines print of their memory, beside what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_ansible.node.engine.log import figures
from vllm_ansible.plan.estimate.layouts.printed import beside, joined

LOG = """
(Worker_TP0 pid=1) INFO Model loading took 79.58 GiB memory and 61.2 seconds
(Worker_TP1 pid=2) INFO Model loading took 79.60 GiB memory and 61.2 seconds
(EngineCore pid=3) INFO 11-20 kv_cache_utils.py:2328] GPU KV cache size: 635,648 tokens, ...
"""
ESTIMATE: dict[str, Any] = {
    "stages": [{"weights_bytes": int(79.55 * 2**30)}],
    "kv_tokens": [575_000, 680_000, 731_000],
}


def test_the_figures_of_a_log_are_read() -> None:
    assert figures(LOG) == {"weights_gib": 79.60, "kv_tokens": 635648.0}
    assert figures("Model loading took 9.1 GiB") == {"weights_gib": 9.1}
    assert figures("KV cache size: 1 GiB.") == {}


def test_a_log_in_pieces_has_the_figures_of_the_whole() -> None:
    first, second = LOG.splitlines()[1:3], LOG.splitlines()[3:]
    assert joined(figures("\n".join(first)), figures("\n".join(second))) == figures(LOG)
    assert joined({"kv_tokens": 5.0}, {"kv_tokens": 3.0}) == {"kv_tokens": 3.0}


def test_figures_within_their_band_are_no_miss() -> None:
    found = beside(ESTIMATE, figures(LOG))
    assert found["misses"] == []
    assert found["expected"] == {"weights_gib": 79.55, "kv_tokens": [575_000, 680_000, 731_000]}


@pytest.mark.parametrize(("printed", "missed"), [(0.25, 0), (0.26, 0), (0.27, 1), (0.24, 1)])
def test_two_decimals_of_a_small_model_are_not_held_to_two_percent(
    printed: float, missed: int
) -> None:
    """0.2506 GiB were planned of SmolLM2, and vLLM printed 0.26."""
    small = {"stages": [{"weights_bytes": int(0.2506 * 2**30)}]}
    assert len(beside(small, {"weights_gib": printed})["misses"]) == missed


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ({"weights_gib": 90.0}, "90 GiB of weights on a rank, and 79.55 were expected"),
        ({"kv_tokens": 10.0}, "10 KV tokens, and 575,000 to 731,000 were expected"),
    ],
)
def test_a_miss_is_a_sentence_with_both_numbers(printed: dict[str, float], said: str) -> None:
    (words,) = beside(ESTIMATE, printed)["misses"]
    assert said in words


def test_without_an_estimate_nothing_is_missed() -> None:
    assert beside({}, figures(LOG))["misses"] == []


def test_weights_of_amd_accelerators_are_not_held_against_what_is_printed() -> None:
    """There engines have printed all that the device had in use, whoever held it."""
    printed = {"weights_gib": 99.0}
    assert beside(ESTIMATE | {"accelerator": "MI300X"}, printed)["misses"] == []
    assert beside(ESTIMATE | {"accelerator": "H200"}, printed)["misses"] != []
    assert beside(ESTIMATE | {"accelerator": "of my own"}, printed)["misses"] != []
