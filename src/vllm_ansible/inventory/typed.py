"""Give values that come as texts, as all of `-e name=value` do, the type of their variable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml
from ansible.module_utils.common.validation import (
    check_type_bool,
    check_type_float,
    check_type_int,
)

from vllm_ansible.inventory.sources import LOADER
from vllm_ansible.inventory.specs import Option

# What a role's argument specification would make of them, which keeps it from nobody else.
SCALARS: dict[str, Callable[[Any], Any]] = {
    "bool": check_type_bool,
    "float": check_type_float,
    "int": check_type_int,
}
KINDS: dict[str, tuple[type, ...]] = {"bool": (bool,), "float": (int, float), "int": (int,)}


def is_typed(option: Option, value: Any) -> bool:
    """Tell whether a value has its type: 0 and 1 are no booleans, booleans no numbers."""
    if option.type not in SCALARS:
        return True
    return isinstance(value, KINDS[option.type]) and (
        option.type == "bool" or not isinstance(value, bool)
    )


def typed(option: Option, value: Any) -> Any:
    """Return a value as what its variable holds; one that cannot be is returned as it came."""
    if is_typed(option, value) or isinstance(value, bool):
        return value
    try:
        return SCALARS[option.type](value)
    except (TypeError, ValueError):
        return value


def as_given(option: Option, value: Any) -> Any:
    """Return a value of the command line, where lists and mappings are texts too."""
    if not isinstance(value, str) or option.type not in ("dict", "list", "raw"):
        return typed(option, value)
    if value.lstrip().startswith(("[", "{")) and "{{" not in value:
        try:
            return yaml.load(value, Loader=LOADER)  # noqa: S506 it is safe
        except yaml.YAMLError:
            return value
    if option.type == "list" and option.spec.get("elements") == "str" and "{{" not in value:
        # As Ansible reads a list of words everywhere else.
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


def differing(
    values: Mapping[str, Any],
    options: Mapping[str, Option],
    convert: Callable[[Option, Any], Any] = typed,
) -> dict[str, Any]:
    """Return the documented variables that are of another type than they came in, converted."""
    found = {}
    for name in values.keys() & options.keys():
        value = convert(options[name], values[name])
        if value is not values[name]:
            found[name] = value
    return found
