"""Our wheels are packed without a build backend, always to the same bytes, and install."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from vllm_ansible.node.environment.wheel import wheel_bytes, wheel_name

PACKAGE: dict[str, Any] = {
    "name": "said-hello",
    "version": "1.2",
    "summary": "Says hello",
    "entry_points": {"some.group": {"hello": "said_hello:hello"}},
    "files": {
        "said_hello/__init__.py": "from .words import hello\n",
        "said_hello/words.py": "def hello() -> str:\n    return 'hello'\n",
    },
}


def test_the_same_package_gives_the_same_bytes() -> None:
    turned = {**PACKAGE, "files": dict(reversed(list(PACKAGE["files"].items())))}
    assert wheel_bytes(PACKAGE) == wheel_bytes(turned)
    # Known bytes: another Python or another machine must come to them too.
    digest = hashlib.sha256(wheel_bytes(PACKAGE)).hexdigest()
    assert digest == "f7c0768c11aa13ae088a80139c527d1935fe8dfe9d731a561b2e95cdf0476f16"


def test_a_changed_file_gives_other_bytes() -> None:
    assert wheel_bytes({**PACKAGE, "files": {"said_hello/__init__.py": ""}}) != wheel_bytes(PACKAGE)


def test_pip_installs_it_with_its_entry_point(tmp_path: Path) -> None:
    path = tmp_path / wheel_name(PACKAGE["name"], PACKAGE["version"])
    path.write_bytes(wheel_bytes(PACKAGE))
    target = tmp_path / "target"
    command = [sys.executable, "-m", "venv", str(tmp_path / "venv")]
    subprocess.run(command, check=True)
    pip = [str(tmp_path / "venv/bin/python"), "-m", "pip", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(path)], check=True, capture_output=True)
    question = (
        "from importlib.metadata import entry_points, version;"
        "point, = entry_points(group='some.group');"
        "print(point.load()(), version('said-hello'))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", question],
        env={"PYTHONPATH": str(target)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.split() == ["hello", "1.2"]


def test_a_name_alone_makes_a_wheel(tmp_path: Path) -> None:
    path = tmp_path / "vllm.whl"
    path.write_bytes(wheel_bytes({"name": "vllm", "version": "0.32.0+cpu"}))
    with zipfile.ZipFile(path) as wheel:
        assert wheel.testzip() is None
        names = [name.partition("/")[2] for name in wheel.namelist()]
    assert names == ["METADATA", "WHEEL", "RECORD"]
