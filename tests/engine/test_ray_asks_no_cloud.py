"""Ray's head asks metadata services of clouds where it runs, and reports that it reports nothing.

When the case without either of our means asks less, remove the one that is not needed any more:
RAY_CLUSTER_FILE in plan/views.py, or RAY_REPORTS_NOWHERE in plan/environment.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_ansible.plan.environment import RAY_REPORTS_NOWHERE
from vllm_ansible.plan.views import RAY_CLUSTER_FILE

Run = Callable[..., subprocess.CompletedProcess[str]]
# What the head's part for usage statistics does, up to where bytes would leave.
HEAD = """
import asyncio
from types import SimpleNamespace
from unittest import mock
import requests
from ray._common.usage import usage_lib
from ray.dashboard.modules.usage_stats.usage_stats_head import UsageStatsHead
asked = []
def send(_, request, **__):
    asked.append(request.url)
    raise requests.exceptions.ConnectionError()
async def report():
    UsageStatsHead._report_disabled_usage_sync(head)
head = SimpleNamespace(usage_stats_enabled=False, gcs_client=None,
    client=usage_lib.UsageReportClient(), _report_disabled_usage_async=report)
with mock.patch.object(requests.adapters.HTTPAdapter, "send", send), \\
     mock.patch.object(usage_lib, "is_ray_init_cluster", lambda _: False):
    asyncio.run(UsageStatsHead.run(head))
print("asked", len(asked))
"""


@pytest.mark.parametrize(
    ("directory", "nowhere", "asked"),
    [(False, False, 4), (True, False, 1), (False, True, 3), (True, True, 0)],
)
def test_the_head_asks_nobody_outside_by_our_two_means(
    run_engine_python: Run, tmp_path: Path, directory: bool, nowhere: bool, asked: int
) -> None:
    environment = {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    if directory:
        (tmp_path / RAY_CLUSTER_FILE).mkdir()
    if nowhere:
        environment["RAY_USAGE_STATS_REPORT_URL"] = RAY_REPORTS_NOWHERE
    done = run_engine_python(HEAD, environment=environment)
    assert f"asked {asked}\n" in done.stdout, done.stdout + done.stderr
