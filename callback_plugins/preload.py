"""Load what every task needs once, before Ansible forks a worker for each task."""

from __future__ import annotations

DOCUMENTATION = """
name: preload
type: aggregate
short_description: Load filters and tests before the first task
description:
  - Ansible forks a worker for every task of every host, and a worker loads the filters and tests
    of all directories when it first looks one up, of which nothing outlives it.
  - What is loaded before is there in every worker. A role that brings filters or tests of its own
    ends that, since Ansible forgets what it has loaded where a directory is added.
"""

import gc

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader


class CallbackModule(CallbackBase):
    """Load filters and tests in the process that workers are forked from."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "preload"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: object) -> None:
        """Load them before the first play."""
        for loader in (filter_loader, test_loader):
            list(loader.all())
        gc.collect()

    def v2_playbook_on_play_start(self, play: object) -> None:
        """Keep the garbage collector of workers from what was there before they were forked.

        It would visit all of it, and with that copy the pages in which it lies.
        """
        gc.freeze()
