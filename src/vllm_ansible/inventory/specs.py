"""What variables exist: the argument_specs of all roles are their only documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vllm_ansible.inventory.sources import LOADER


@dataclass(frozen=True)
class Option:
    """One documented variable and the role that documents it."""

    name: str
    role: str
    spec: Mapping[str, Any]

    @property
    def type(self) -> str:
        """Return the type a value must have."""
        return str(self.spec.get("type", "str"))

    @property
    def default(self) -> Any:
        """Return the value that stands in when an inventory says nothing."""
        return self.spec.get("default")


def load_options(roles: Path) -> dict[str, Option]:
    """Return every variable that some role documents, by name."""
    options: dict[str, Option] = {}
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        page = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506 it is safe
        specs = page["argument_specs"]
        for entry in specs.values():
            for name, spec in (entry.get("options") or {}).items():
                options.setdefault(name, Option(name, path.parents[1].name, spec))
    return options
