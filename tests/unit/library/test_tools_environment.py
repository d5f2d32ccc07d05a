"""A host without uv: pip installs it alone, and uv the rest; where uv cannot, pip does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tools_environment
from ansible.module_utils.testing import patch_module_args

from vllm_ansible.node.environment import tools

LOCK = """\
tqdm==4.1 \\
    --hash=sha256:1
uv==0.1 \\
    --hash=sha256:2 \\
    --hash=sha256:3
    # via -r tools.in
"""
OF_UV = "uv==0.1 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3"
# Makes an environment with itself as its Python, whose pip brings the uv that lies beside it.
PYTHON = """#!/bin/sh
echo "python $* index=$UV_DEFAULT_INDEX" >> HERE/log
case "$*" in
  "-m venv "*) mkdir -p $3/bin && cp $0 $3/bin/python ;;
  *" -r HERE/tools/uv.txt") cp HERE/uv HERE/tools/bin/ ;;
  *) exit $(cat HERE/pip) ;;
esac
"""
UV = """#!/bin/sh
echo "uv $* index=$UV_DEFAULT_INDEX" >> HERE/log
exit $(cat HERE/status)
"""


MIRROR = "https://mirror.example/simple"


@pytest.mark.parametrize("told", ["variable", "file", "uv"])
@pytest.mark.parametrize(("uv", "pip"), [(0, 0), (2, 0), (2, 1)])
def test_pip_installs_uv_and_what_uv_cannot_install(
    uv: int,
    pip: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, program in (("python", PYTHON), ("uv", UV)):
        (tmp_path / name).write_text(program.replace("HERE", str(tmp_path)))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "status").write_text(str(uv))
    (tmp_path / "pip").write_text(str(pip))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = tmp_path / ".config/pip/pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[global]\nindex-url = {MIRROR if told == 'file' else 'https://other'}\n")
    args: dict[str, Any] = {
        **{"cluster_dir": str(tmp_path), "requirements": LOCK, "python": str(tmp_path / "python")},
        "environment": {
            "variable": {"PIP_INDEX_URL": MIRROR},
            "file": {},
            "uv": {"PIP_INDEX_URL": "https://other", "UV_DEFAULT_INDEX": MIRROR},
        }[told],
    }
    with patch_module_args(args), pytest.raises(SystemExit):
        tools_environment.main()
    result = json.loads(capsys.readouterr().out)
    ran = (tmp_path / "log").read_text().replace(str(tmp_path), "").splitlines()
    install = "python -m pip install --quiet --require-hashes --only-binary=:all: -r"
    expected = [
        "python -m venv /tools",
        f"{install} /tools/uv.txt",
        "uv pip install --quiet --python /tools/bin/python --require-hashes -r /tools.txt",
        *[f"{install} /tools.txt"] * (uv != 0),
    ]
    assert ran == [f"{one} index={MIRROR}" for one in expected]
    assert (tmp_path / "tools/uv.txt").read_text() == OF_UV
    assert bool(result.get("failed")) == bool(pip)
    assert (tmp_path / "tools/.complete").exists() == (not pip)
    if pip:
        assert "-m pip install" in result["command"]


@pytest.mark.parametrize(
    ("of_pip", "given", "of_uv"),
    [
        ("no-index = true\nfind-links = /w /v", {}, {"UV_OFFLINE": "1", "UV_FIND_LINKS": "/w,/v"}),
        ("no-index = false", {}, {}),
        ("proxy = http://proxy:3128", {}, {"ALL_PROXY": "http://proxy:3128"}),
        ("proxy = http://proxy:3128", {"HTTPS_PROXY": "http://other"}, {}),
        ("no-index = yes", {"UV_OFFLINE": "0"}, {}),
        ("find-links = /w", {"PIP_FIND_LINKS": "/p"}, {"UV_FIND_LINKS": "/p"}),
    ],
)
def test_what_pip_alone_was_told_holds_for_uv(
    of_pip: str,
    given: dict[str, str],
    of_uv: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [*tools.OF_PIP, *(one for each in tools.OF_PIP.values() for one in each)]
    for name in names:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"PIP_{name.replace('-', '_').upper()}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip/pip.conf").write_text(
        "[global]\n" + "".join(f"{name} =\n" for name in tools.OF_PIP) + f"{of_pip}\n"
    )
    found = {name: value for name, value in tools.settings(given).items() if name in names}
    assert {name: found[name] for name in found.keys() - given.keys()} == of_uv


def test_uv_without_its_network_is_told_so_in_its_own_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    assert tools.settings({"PIP_NO_INDEX": "on"})["UV_OFFLINE"] == "1"
