"""An environment's bytecode is linked to the sources that uv links, and to nothing else."""

from __future__ import annotations

import compileall
import os
from importlib.util import cache_from_source
from pathlib import Path

from tests import bytecode

FILES = ("tiny/__init__.py", "tiny/inner/deep.py", "tiny-1.dist-info/METADATA")


def installed(archive: Path, site: Path) -> None:
    """Link an unpacked wheel into an environment, as uv does."""
    for path in (one for one in archive.rglob("*") if one.is_file()):
        place = site / path.relative_to(archive)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, place)


def test_what_is_compiled_is_linked_into_the_next_environment(tmp_path: Path) -> None:
    archive, first, second = tmp_path / "archive-v0/abc", tmp_path / "first", tmp_path / "second"
    for name in FILES:
        (archive / name).parent.mkdir(parents=True, exist_ok=True)
        (archive / name).write_text("ONE = 1\n")
    installed(archive, first)
    # What this environment alone has, and what is in no wheel.
    (first / "tiny/own.py").write_text("TWO = 2\n")
    (first / "other.py").write_text("")
    assert compileall.compile_dir(str(first), quiet=1)
    assert bytecode.share(first, tmp_path) == 2
    assert bytecode.share(first, tmp_path) == 0
    installed(archive, second)
    for name in FILES[:2]:
        compiled = [Path(cache_from_source(str(site / name))) for site in (first, second)]
        assert compiled[0].samefile(compiled[1])
    assert len(list(second.rglob("*.pyc"))) == 2


def test_an_environment_that_was_not_linked_shares_nothing(tmp_path: Path) -> None:
    for place in (tmp_path / "archive-v0/abc", tmp_path / "site"):
        for name in FILES:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("ONE = 1\n")
    assert compileall.compile_dir(str(tmp_path / "site"), quiet=1)
    assert bytecode.share(tmp_path / "site", tmp_path) == 0
    assert not list((tmp_path / "archive-v0").rglob("*.pyc"))
