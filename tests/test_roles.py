"""What a role's documentation says of a variable is what its defaults do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = sorted((Path(__file__).parents[1] / "roles").iterdir())


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text()) if path.exists() else {}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_and_their_documentation_are_equal(role: Path) -> None:
    options = read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert read(role / "defaults/main.yml") == {
        name: option["default"] for name, option in options.items()
    }
    assert all(option["description"] for option in options.values())


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_variable_carries_the_name_of_its_role(role: Path) -> None:
    fixed = read(role / "vars/main.yml")
    public = {} if role.name == "site" else read(role / "defaults/main.yml")
    strays = [name for name in {**fixed, **public} if not name.startswith(f"{role.name}_")]
    assert strays == []
