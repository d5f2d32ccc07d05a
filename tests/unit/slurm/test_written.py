from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.problem import PlanError
from vllm_ansible.slurm.written import write


def test_a_file_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "a.sbatch"
    assert write(path, "text\n", replace=False, check=True)
    assert not path.exists()
    assert write(path, "text\n", replace=False, check=False)
    assert path.read_text() == "text\n"
    assert oct(path.stat().st_mode)[-3:] == "644"
    assert not write(path, "text\n", replace=False, check=False)
    assert [one.name for one in tmp_path.iterdir()] == ["a.sbatch"]


@pytest.mark.parametrize("check", [True, False])
def test_a_file_that_says_something_else_is_replaced_only_when_asked(
    tmp_path: Path, check: bool
) -> None:
    path = tmp_path / "a.sbatch"
    path.write_text("mine")
    with pytest.raises(PlanError, match="exists and says something else"):
        write(path, "text", replace=False, check=check)
    assert path.read_text() == "mine"
    assert write(path, "text", replace=True, check=check)
    assert path.read_text() == ("mine" if check else "text")


@pytest.mark.parametrize("check", [True, False])
def test_a_place_that_cannot_hold_it_is_told(
    as_nobody: Callable[[Callable[[], Any]], Any], check: bool
) -> None:
    def told(path: str) -> str:
        try:
            write(Path(path), "text", replace=True, check=check)
        except PlanError as refused:
            return str(refused)
        return "written"

    assert "/no/such does not exist" in as_nobody(lambda: told("/no/such/a.sbatch"))
    assert "not yours to write" in as_nobody(lambda: told("/etc/a.sbatch"))
    assert "cannot be written" in as_nobody(lambda: told("/etc"))
