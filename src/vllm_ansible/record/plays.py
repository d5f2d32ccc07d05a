"""Read what the record needs from Ansible's own objects, which have no types."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vllm_ansible.provision.giver import givers


def stage(play: Any) -> str:
    """Return the stage a play belongs to: the first tag it was written with, else its name.

    Ansible merges the tags of an imported playbook through a set, so `play.tags` has lost their
    order; the play as it was written has not. `always` and `never` are no stages.
    """
    written = play.get_ds() if callable(getattr(play, "get_ds", None)) else None
    tags = written.get("tags") if isinstance(written, Mapping) else None
    if isinstance(tags, str):
        tags = tags.split(",")
    names = [str(tag).strip() for tag in tags or sorted(play.tags)]
    return next((name for name in names if name not in ("always", "never", "")), play.get_name())


def is_selected(play: Any) -> bool:
    """Tell whether the tags of the command include this play."""
    tags, wanted, unwanted = set(play.tags), set(play.only_tags), set(play.skip_tags)
    if tags & unwanted:
        return False
    if tags & wanted or "always" in tags:
        return True
    return "all" in wanted and "never" not in tags


def cluster_name(play: Any) -> str | None:
    """Return the name of the cluster that the inventory describes, if it gives a plain one."""
    name = of_first_host(play, "all").get("cluster_name")
    return name if isinstance(name, str) and "{{" not in name else None


def of_first_host(play: Any, group: str) -> Mapping[str, Any]:
    """Return the variables of a group's first host, its templates as they were written."""
    manager = play.get_variable_manager()
    hosts = manager._inventory.get_hosts(group)
    found: Mapping[str, Any] = (
        manager.get_vars(host=hosts[0], include_hostvars=False) if hosts else {}
    )
    return found


# What holds a secret of the cluster: by the variables that name it, and by name in state/<cluster>.
SECRET_FILES = (
    *("vllm_api_key_file", "huggingface_token_file", "object_storage_credentials_file"),
    *(variable for one in givers().values() for variable in one.secret_files),
)
SECRET_LINES = ("router_client_keys_file",)
# How the environment of a controller names the secrets of those who rent machines or keep models.
OWNERS = (
    "HF",
    "HUGGING_FACE",
    *(name for one in givers().values() for name in one.secret_variables),
)
SECRET_VARIABLES = re.compile(rf"(?:{'|'.join(OWNERS)})_\w+")
STATE_SECRETS = ("api_key", "ray_token", "huggingface_token")


def secret_files(play: Any, state: Path) -> list[Path]:
    """Return the files on this machine that hold the cluster's secrets, if they are there."""
    name = cluster_name(play)
    kept = (file for one in givers().values() for file in one.credentials())
    own = [state / name / one for one in STATE_SECRETS if name]
    return [
        *_named_files(play, SECRET_FILES),
        *own,
        *(Path(os.path.expanduser(file)) for file in kept),
    ]


def files_of_lines(play: Any) -> list[Path]:
    """Return the files on this machine that hold one secret a line."""
    return _named_files(play, SECRET_LINES)


def own_environment() -> dict[str, str]:
    """Return what this process has been given of those who rent machines or keep models."""
    return {name: os.environ[name] for name in os.environ if SECRET_VARIABLES.fullmatch(name)}


def _named_files(play: Any, names: Iterable[str]) -> list[Path]:
    variables = of_first_host(play, "all")
    named = [variables.get(name) for name in names]
    return [Path(one).expanduser() for one in named if isinstance(one, str) and one]


def sources(play: Any) -> list[Mapping[str, Any]]:
    """Return the variables with which hosts reach packages and models, as they were written."""
    manager = play.get_variable_manager()
    found = (
        manager.get_vars(host=one, include_hostvars=False).get("sources_environment")
        for one in manager._inventory.get_hosts("all")
    )
    return [one for one in found if isinstance(one, Mapping)]


def hosts(play: Any) -> list[str]:
    """Return the names of all hosts of the inventory."""
    return [str(one) for one in play.get_variable_manager()._inventory.get_hosts("all")]


def is_meta(task: Any) -> bool:
    """Tell whether a task works on the run itself, and on no host."""
    return str(task.action).rpartition(".")[2] == "meta"


def is_rescued(task: Any) -> bool:
    """Tell whether a rescue section waits for this task's failure.

    Ansible only says so in its statistics, at the end. A task inside the rescue or always section
    is not covered by that block, but may be by one around it.
    """
    child, parent = task, task._parent
    while parent is not None:
        guarded = getattr(parent, "rescue", None) or []
        if guarded and any(item._uuid == child._uuid for item in parent.block):
            return True
        child, parent = parent, parent._parent
    return False


def host(result: Any) -> str:
    """Return the host that a task ran on: not the one that delegated it."""
    # ansible-core 2.21 warns of the same mapping without its underscore, at each failure, and has
    # the resolved name on the task as well, which 2.19 has not.
    return str(result._task_fields.get("delegate_to") or result.host.get_name())


def task_name(result: Any) -> str:
    """Return the name of a task as its file words it: ansible-core 2.21 puts its role before."""
    return str(result._task_fields.get("name") or result.task_name)


def address(result: Any) -> str:
    """Return where Ansible tried to reach the host that a task ran on."""
    name = host(result)
    # A host that did not answer leaves no `_ansible_delegated_vars`.
    ran_on = result.task.get_variable_manager()._inventory.get_host(name)
    variables = ran_on.get_vars() if ran_on else {}
    return str(variables.get("ansible_host") or name)


def reason(result: Any) -> str | None:
    """Return the words of the error at the root of a failed result, without any traceback."""
    event = getattr(result.exception, "event", None)
    while chain := getattr(event, "chain", None):
        event = chain.event
    return str(event.msg) if event is not None else None


def warning_text(warning: Any) -> str:
    """Return the words of a warning, which may be text or one of Ansible's own messages."""
    event = getattr(warning, "event", None)
    return str(getattr(event, "msg", None) or getattr(warning, "msg", None) or warning)
