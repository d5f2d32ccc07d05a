"""Run ansible-lint, with one syntax check of everything in place of one process for each.

    .venv/bin/python tools/lint_ansible.py --offline

ansible-lint starts `ansible-playbook --syntax-check` for each playbook, for each role and for each
playbook that another one imports, and each of these processes loads Ansible anew. ansible-playbook
checks any number of playbooks in one. Where that fails, ansible-lint checks each for itself, as it
does alone, and names the file.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from ansible_compat.runtime import Runtime
from ansiblelint.__main__ import _run_cli_entrypoint
from ansiblelint.errors import MatchError
from ansiblelint.file_utils import Lintable
from ansiblelint.runner import Runner

each_for_itself = Runner._run_syntax_check_phase
one_for_itself = Runtime.has_playbook
sound: set[Path] = set()


def are_sound(
    playbooks: Sequence[Path], roles: Sequence[Path], environment: Mapping[str, str]
) -> bool:
    """Return whether ansible-playbook can load all of them."""
    imports = [
        {
            "name": f"Check {role}",
            "hosts": "localhost",
            "tasks": [{"ansible.builtin.import_role": {"name": str(role.absolute())}}],
        }
        for role in roles
    ]
    with tempfile.NamedTemporaryFile("w", prefix="play", suffix=".yml") as file:
        yaml.safe_dump(imports, file)
        file.flush()
        words = [*map(str, playbooks), *([file.name] if imports else [])]
        done = subprocess.run(  # noqa: S603
            ["ansible-playbook", "--syntax-check", *words],  # noqa: S607
            env={
                **environment,
                "PYTHONWARNINGS": "ignore",
                "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "False",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    return done.returncode == 0


def all_at_once(self: Runner, matches: list[MatchError]) -> list[Lintable]:
    """Check the syntax of all files; where one is wrong, as ansible-lint does."""
    files: list[Lintable] = self._collect_syntax_check_files()
    of_kind = {
        kind: sorted(one.path.expanduser() for one in files if one.kind == kind)
        for kind in ("playbook", "role")
    }
    if not any(of_kind.values()):
        return files
    if not are_sound(of_kind["playbook"], of_kind["role"], self.app.runtime.environ):
        return each_for_itself(self, matches)
    sound.update(path.resolve() for path in of_kind["playbook"])
    return files


def has_playbook(self: Runtime, playbook: str, *, basedir: Path | None = None) -> bool:
    """Return whether a playbook can be loaded; those that were checked are not loaded again."""
    return Path(basedir or ".", playbook).resolve() in sound or one_for_itself(
        self, playbook, basedir=basedir
    )


def main() -> None:
    """Run ansible-lint so."""
    Runner._run_syntax_check_phase = all_at_once
    Runtime.has_playbook = has_playbook
    _run_cli_entrypoint()


if __name__ == "__main__":
    main()
