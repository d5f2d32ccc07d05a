"""What a server does for a chat before its engine begins, by the release that did it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from vllm_ansible.accelerators.machines import machines
from vllm_ansible.plan.estimate.layouts.answer import answer
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.throughput import constants as c
from vllm_ansible.plan.estimate.throughput.estimate import chat_seconds, version

from .published import published

MEASURED = json.loads(
    (Path(__file__).parents[4] / "data" / "chat-templates.json").read_text(encoding="utf-8")
)
QWEN, GPT_OSS = "Qwen3ForCausalLM", "GptOssForCausalLM"


@pytest.mark.parametrize(
    ("release", "seconds"),
    [
        ("0.7.3", 0),
        ("0.8.5.post1", c.CHAT_TEMPLATE_BEFORE_0_9_2),
        ("0.9.1", c.CHAT_TEMPLATE_BEFORE_0_9_2),
        ("0.9.2", 0),
        ("0.10.2", 0),
        ("0.11.0", c.CHAT_TEMPLATE_0_11_0),
        ("0.11.1", 0),
        ("0.32.0", 0),
    ],
)
def test_only_releases_that_read_a_template_anew_take_long_over_a_chat(
    release: str, seconds: float
) -> None:
    assert chat_seconds(QWEN, version(release)) == seconds
    assert chat_seconds(GPT_OSS, version(release)) == 0


def test_the_time_of_a_template_is_what_was_measured() -> None:
    whole = MEASURED["0.11.0, whole"].values()
    assert pytest.approx(mean(whole) * 1e-3, rel=0.05) == c.CHAT_TEMPLATE_0_11_0
    least = min(MEASURED["0.9.1, the format of a chat's content"].values())
    assert least * 1e-3 < c.CHAT_TEMPLATE_BEFORE_0_9_2 <= 8e-3


def test_a_server_makes_one_prompt_after_the_other() -> None:
    """Short chats of a small model: 0.11.0 serves no more than it can make prompts for."""
    model = published("Qwen/Qwen3-8B")
    asked = Request(model, machines("1x1 H200"), 256, 128, 4, engine_version="0.11.0")
    slow, fast = (answer(replace(asked, engine_version=one)) for one in ("0.11.0", "0.11.1"))
    loads = slow.chosen.load, fast.chosen.load
    assert loads[0] is not None and loads[1] is not None
    replies = [load.output_rate.middle / 4 for load in loads]
    assert replies[0] == pytest.approx(1 / c.CHAT_TEMPLATE_0_11_0)
    assert replies[1] > 2 * replies[0]
    later = loads[0].first_token.middle - loads[1].first_token.middle
    assert later == pytest.approx(c.CHAT_TEMPLATE_0_11_0, rel=0.2)
