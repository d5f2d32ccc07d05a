"""Run library modules as Ansible would, with their commands scripted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import ansible.module_utils
import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from xdist.scheduler.loadscope import LoadScopeScheduling

from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.lab import TOOLS

ROOT = Path(__file__).parents[1]
# What `module_utils = src` in ansible.cfg does for a play.
ansible.module_utils.__path__.append(str(ROOT / "src"))

# As wide as a console without a terminal: whoever runs the tests may have another.
os.environ["COLUMNS"] = "100"

# Tests that take minutes, most of them spent waiting: two rows of them at once, all others beside.
ROWS = {"engine": "engines", "flows": "engines", "lab": "hosts", "test_molecule.py": "hosts"}
# Files whose tests go on, one after the other, with what the first has started.
IN_ORDER = ("tests/unit/router/test_role.py",)


class Rows(LoadScopeScheduling):
    """Give each row and each such file to one worker, and every other test to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in IN_ORDER:
            return path
        return ROWS.get(path.split("/")[1], nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Rows:
    """Schedule by rows."""
    return Rows(config, log)


@pytest.fixture(scope="session")
def real_hosts() -> None:
    """Skip where this machine cannot make hosts, and say what it lacks."""
    if os.geteuid() != 0:
        pytest.skip(f"real hosts need root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"real hosts need {', '.join(missing)}")


@pytest.fixture
def run_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Run one module; each command it runs must be the next of the script."""

    def run(
        name: str, args: dict[str, Any], runs: list[dict[str, Any]], check: bool = False
    ) -> dict[str, Any]:
        script = iter(runs)

        def run_command(self: AnsibleModule, argv: list[str], **_: Any) -> tuple[int, str, str]:
            expected = next(script, None)
            assert expected is not None, f"unexpected command: {argv}"
            assert argv == expected["argv"]
            return expected.get("rc", 0), expected.get("out", ""), expected.get("err", "")

        monkeypatch.setattr(AnsibleModule, "run_command", run_command)
        monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda self, tool, **_: f"/bin/{tool}")
        with patch_module_args({**args, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            import_module(name).main()
        assert next(script, None) is None, "not every scripted command was run"
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run


def python_3_9() -> str | None:
    """Return a Python 3.9, the oldest that a host may have."""
    # A shim of a version manager may be there and have nothing behind it: ask, do not trust names.
    homes = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    for candidate in [shutil.which("python3.9"), *map(str, homes)]:
        if candidate and _version(candidate).startswith("Python 3.9."):
            return candidate
    return None


def _version(python: str) -> str:
    found = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    return found.stdout


@pytest.fixture(scope="session", params=["this Python", "Python 3.9"])
def node_python(request: pytest.FixtureRequest) -> str:
    """Return each Python that node code is run with: the controller's, and the oldest of hosts."""
    if request.param == "this Python":
        return sys.executable
    python = python_3_9()
    if python is None:
        pytest.skip("no Python 3.9 on this machine to run node code with")
    return python
