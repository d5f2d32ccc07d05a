"""Refuse variables that do not exist and values that are of the wrong type."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ansible.accelerators.platform import AUTO, served
from vllm_ansible.inventory.specs import Option
from vllm_ansible.problem import Problem, close_match
from vllm_ansible.provision.giver import givers

# Ansible's own, what the roles leave behind, and what molecule adds to the inventory it makes.
FREE_PREFIXES = ("my_", "__", "molecule_")
LEFT_BEHIND = (
    "site_become",
    "environment_installed",
    "site_head",
    "site_host",
    "site_hosts",
    "site_idle",
    "site_plan",
    "site_unchecked",
)
MAGIC = (
    "environment",
    "group_names",
    "groups",
    "hostvars",
    "inventory_dir",
    "inventory_file",
    "inventory_hostname",
    "inventory_hostname_short",
    "omit",
    "play_hosts",
    "playbook_dir",
    "role_name",
    "role_names",
    "role_path",
    "role_uuid",
    "vars",
)
PATTERNS = {
    "cluster_name": (
        r"[a-z][a-z0-9-]{0,15}",
        "a small letter, then at most 15 small letters, digits or dashes",
        "choose a short name, such as r1",
    ),
    "engine_python": (
        r"3\.\d{1,2}",
        "a Python release such as 3.11, in quotes",
        'write "3.11"',
    ),
    "service_user": (r"|[a-z_][a-z0-9_-]{0,31}", "the name of a user", "correct the name"),
    "data_plane_interface": (r"|[^\s/]{1,15}", "the name of an interface", "see `ip address`"),
    "cluster_dir": (r"|[/~][^\s'\"]*", "an absolute path without spaces", "write /srv/..."),
    "nfs_cache_path": (
        r"|/[^\s'\"]*[^\s'\"/]",
        "an absolute path without spaces",
        "write /srv/...",
    ),
    "nfs_cache_directory": (
        r"|/[^\s'\"]*",
        "an absolute path without spaces",
        "write /var/cache/...",
    ),
    "nfs_cache_export": (r"|\S+:/\S*", "server:/path", "write it as the server exports it"),
    "nfs_cache_options": (
        r"|[^\s#,]+(,[^\s#,]+)*",
        "options of mount(8), with commas and without spaces",
        "write vers=4.2,hard",
    ),
    "nfs_cache_probe_mib": (r"[1-9]\d*", "one or more", "write 64"),
    "engine_image": (
        r"|[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?",
        "the name of an image, with its tag and digest",
        "write it as docker pull takes it",
    ),
    "engine_image_file": (r"|/[^\s'\":,]*", "an absolute path without spaces", "write /srv/..."),
    "engine_image_sha256": (
        r"|[0-9a-f]{64}",
        "64 hexadecimal digits, small letters",
        "take what `sha256sum` prints of the file",
    ),
    "environment_shared_dir": (r"|/[^\s'\"]*", "an absolute path without spaces", "write /srv/..."),
    "environment_path": (r"|/[^\s'\"]*", "an absolute path without spaces", "write /srv/..."),
    "models_dir": (r"|[/~][^\s'\"]*", "an absolute path without spaces", "write /srv/..."),
    "object_storage_endpoint": (
        r"|https?://[^\s/?#@]+(/[^\s?#@]*)?",
        "an address such as https://minio.example:9000, without credentials",
        "correct it; credentials go into object_storage_credentials_file",
    ),
    "object_storage_region": (r"|[a-z0-9-]{1,40}", "the name of a region", "write eu-central-1"),
}
# What is decided by what there is in a room, and not by a specification.
KINDS: Mapping[str, Sequence[str]] = {
    "accelerator": (AUTO, *served()),
    "provision_provider": ("", *givers()),
}
# By the name of a variable that was, why it went, what is read in its place, and what to do.
MOVED = {
    "collectives_environment": (
        "collectives_environment is no longer read: links are measured with what engines run with",
        "what NCCL, ECCL or gloo need in `environment` of each engine",
        "write its variables under `environment` of the engines, and remove it",
    ),
}
WORDS = {
    "bool": "yes or no (true or false)",
    "dict": "a mapping",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "a text",
}


@dataclass(frozen=True)
class Unresolved:
    """A value whose template could not be evaluated."""

    reason: str


Where = Callable[[str, Sequence[str]], str]
Accepts = Callable[[Option, Any], bool]


def unknown_variables(
    hosts: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Option],
    connection: Sequence[str],
    where: Where,
) -> list[Problem]:
    """Return one problem for each variable that nothing reads, with the name that was meant."""
    known = {*options, *LEFT_BEHIND, *MAGIC}
    owners: dict[str, list[str]] = {}
    for host, variables in hosts.items():
        for name in variables:
            if name not in known and not name.startswith(FREE_PREFIXES):
                owners.setdefault(str(name), []).append(host)
    return [
        _unknown(name, named, [*options, *connection], where(name, named))
        for name, named in sorted(owners.items())
        if not name.startswith("ansible_") or _misspelt(name, connection)
    ]


def wrong_types(
    hosts: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Option],
    accepts: Accepts,
    where: Where,
) -> list[Problem]:
    """Return one problem for each value that is not what its variable holds."""
    found: dict[tuple[str, str], tuple[Problem, list[str]]] = {}
    for host, variables in hosts.items():
        for name in sorted(variables.keys() & options.keys()):
            problem = _wrong(options[name], variables[name], accepts)
            if problem:
                found.setdefault((name, problem.message), (problem, []))[1].append(host)
    return [
        Problem(problem.message, problem.expected, problem.found, where(name, named), problem.fix)
        for (name, _), (problem, named) in found.items()
    ]


def _unknown(name: str, hosts: Sequence[str], known: Sequence[str], where: str) -> Problem:
    """Return the refusal of one name."""
    if name in MOVED:
        message, expected, fix = MOVED[name]
        return Problem(message, expected, f"{name} on {', '.join(hosts)}", where, fix)
    hint = close_match(name, known)
    return Problem(
        f"no variable is called {name}",
        expected="a variable some role documents, or a name of your own that starts with my_",
        found=f"{name} on {', '.join(hosts)}",
        where=where,
        fix=hint or f"remove it, or call it my_{name} if only your own files read it",
    )


def _misspelt(name: str, connection: Sequence[str]) -> bool:
    """Tell whether an ansible_ name is almost, but not quite, one that Ansible reads.

    Plugins and vendors add names of their own, so an unknown one alone is no mistake.
    """
    if name in connection:
        return False
    return any(_one_slip(name, known) for known in connection if abs(len(name) - len(known)) < 2)


def _one_slip(name: str, known: str) -> bool:
    """Tell whether one letter was left out, added, changed, or swapped with the next."""
    if len(name) == len(known):
        wrong = [
            place for place, pair in enumerate(zip(name, known, strict=True)) if len({*pair}) > 1
        ]
        swapped = len(wrong) == 2 and wrong[1] == wrong[0] + 1
        return len(wrong) == 1 or (
            swapped and name[wrong[0]] == known[wrong[1]] and name[wrong[1]] == known[wrong[0]]
        )
    short, long = sorted((name, known), key=len)
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))


def _wrong(option: Option, value: Any, accepts: Accepts) -> Problem | None:
    """Return what is wrong with one value, if anything is."""
    if isinstance(value, Unresolved):
        return Problem(
            f"{option.name} cannot be resolved: {value.reason.rstrip('.')}",
            expected="a value, or a template of variables that are set",
            found=value.reason,
            fix=f"correct the template of {option.name}",
        )
    choices = option.spec.get("choices") or KINDS.get(option.name)
    if choices and value not in choices:
        hint = close_match(str(value), [str(choice) for choice in choices])
        return _not(option, value, f"one of {', '.join(map(str, choices))}", hint)
    if not _holds(option.type, value) or not accepts(option, value):
        number = option.type == "str" and isinstance(value, (int, float))
        fix = "write it in quotes, else YAML reads no text" if number else ""
        return _not(option, value, WORDS.get(option.type, option.type), fix)
    return _pattern(option, value)


def _pattern(option: Option, value: Any) -> Problem | None:
    """Return what is wrong with a text of the right type."""
    pattern, expected, fix = PATTERNS.get(option.name, (r"(?s).*", "", ""))
    if option.name in PATTERNS and not re.fullmatch(pattern, str(value)):
        return _not(option, value, expected, fix)
    if option.name == "data_plane_network" and value:
        try:
            ipaddress.IPv4Network(str(value))
        except ValueError:
            return _not(option, value, "a network such as 10.0.0.0/24", "write its network address")
    least = min(0, option.default) if option.type in ("int", "float") and option.default else 0
    if option.type in ("int", "float") and not least <= float(value) < math.inf:
        return _not(option, value, "zero or more", "")
    return None


def _holds(kind: str, value: Any) -> bool:
    """Tell whether a value has the shape of a type, more strictly than Ansible converts.

    Ansible makes texts of lists and numbers without a word: 3.10 becomes "3.1".
    """
    shapes: dict[str, tuple[type, ...]] = {
        "bool": (bool, str, int),
        "dict": (Mapping,),
        "float": (int, float, str),
        "int": (int, str),
        "list": (list,),
        "path": (str,),
        "str": (str,),
    }
    if kind in ("int", "float") and isinstance(value, bool):
        return False
    return isinstance(value, shapes.get(kind, (object,)))


def _not(option: Option, value: Any, expected: str, fix: str) -> Problem:
    """Return the refusal of a value."""
    kind = {"AnsibleUnicode": "str"}.get(type(value).__name__, type(value).__name__.lstrip("_"))
    kind = kind.removeprefix("AnsibleTagged").lower()
    # Who writes a password into an address is not to find it in a log.
    shown = re.sub(r"//\S*@", "//***@", f"{value!r} ({kind})")
    return Problem(
        f"{option.name} must be {expected}, not {shown}",
        expected=expected,
        found=shown,
        fix=fix or f"correct it (see `ansible-doc -t role {option.role}`)",
    )
