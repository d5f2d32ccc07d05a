"""Refuse unknown tags, and give every variable its type, before the first task of a run."""

from __future__ import annotations

DOCUMENTATION = """
name: command_line
type: notification
short_description: Give variables their types, and refuse tags that do not exist
description:
  - What C(-e name=value) gives is text, and so are values of INI inventories. Each variable that a
    role documents gets the type of its C(argument_specs), so that C(-e teardown_everything=false)
    means what it says, in every playbook and before anything reads it. A value that has no such
    meaning stays as it is, for M(check_inventory) to refuse.
  - A tag of C(--tags) or C(--skip-tags) that this project's playbook does not have ends the run.
"""

import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.callback import CallbackBase
from ansible.template import Templar

from vllm_ansible.inventory.command_line import tags_of, unknown_tags
from vllm_ansible.inventory.provider import refuse
from vllm_ansible.inventory.specs import Option, load_options
from vllm_ansible.inventory.typed import as_given, differing, is_typed

REPOSITORY = Path(__file__).resolve().parents[1]


class CallbackModule(CallbackBase):
    """Do so in the process that every task is forked from."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "command_line"
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    @cached_property
    def _documented(self) -> dict[str, Option]:
        return load_options(REPOSITORY / "roles")

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Refuse unknown tags of our own playbooks, and type what the command line gives."""
        file = Path(playbook._basedir, Path(playbook._file_name).name).resolve()
        if file.parent in (REPOSITORY, REPOSITORY / "playbooks"):
            asked = {
                "--tags": context.CLIARGS.get("tags") or (),
                "--skip-tags": context.CLIARGS.get("skip_tags") or (),
            }
            name = str(file.relative_to(REPOSITORY))
            if problems := unknown_tags(asked, sorted(tags_of(file)), name):
                refuse(problems, "tags")
        plays = playbook.get_plays()
        extra = plays[0].get_variable_manager().extra_vars if plays else {}
        if extra:
            # This very mapping is what every task reads, and nothing comes before it.
            extra.update(differing(extra, self._documented, as_given))

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Type what inventories give as text, once for each host that there is by now."""
        manager = play.get_variable_manager()
        for host in manager._inventory.get_hosts("all"):
            if host.name not in self._seen:
                self._seen.add(host.name)
                values = self._values(play, manager.get_vars(host=host, include_hostvars=False))
                if facts := differing(values, self._documented):
                    manager.set_nonpersistent_facts(host.name, facts)

    def _values(self, play: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are not of their type as they are, with templates evaluated."""
        templar = Templar(loader=play.get_loader(), variables=dict(variables))
        found = {}
        for name in variables.keys() & self._documented.keys():
            if not is_typed(self._documented[name], variables[name]):
                try:
                    value = templar.template(variables[name])
                except AnsibleError:
                    # `validate` says why.
                    continue
                if not is_typed(self._documented[name], value):
                    found[name] = value
        return found
