"""Tell the program that started this run where its record lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: run_pointer
type: notification
short_description: Write the path of the run's directory into a file
description:
  - Writes E(VLLM_ANSIBLE_RUN_DIR), which the callback C(run_record) sets, into the file that
    E(VLLM_ANSIBLE_RUN_POINTER) names. Several runs may begin in one checkout at the same moment,
    so the newest record may be that of another run.
requirements: [the callback run_record]
"""


class CallbackModule(CallbackBase):
    """Write the pointer as soon as the record exists, once."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "run_pointer"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        self._told = False

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Try at the first play; run_record may come after this callback."""
        self._tell()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Try at each task until it is told."""
        self._tell()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Try a last time, for a run without a task."""
        self._tell()

    def _tell(self) -> None:
        pointer = os.environ.get("VLLM_ANSIBLE_RUN_POINTER")
        directory = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
        if self._told or not pointer or not directory:
            return
        self._told = True
        part = Path(f"{pointer}.part")
        part.write_text(directory, encoding="utf-8")
        part.replace(pointer)
