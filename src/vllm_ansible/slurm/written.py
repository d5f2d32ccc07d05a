"""The file that a script is written to: whole, and never in place of something else unasked."""

from __future__ import annotations

import os
from pathlib import Path

from vllm_ansible.problem import PlanError, Problem


def write(path: Path, text: str, replace: bool, check: bool) -> bool:
    """Return whether the file differs, after it was written; raise PlanError where it cannot be.

    check: nothing is written, and what would keep it from being written is told all the same.
    """
    before = _read(path)
    if before == text:
        return False
    if before is not None and not replace:
        raise PlanError(
            Problem(
                f"{path} exists and says something else",
                expected="no such file, or one that says the same",
                found=f"a file of {len(before.splitlines())} lines",
                where=str(path),
                fix="name another file with --output, or replace it with --force "
                "(-e slurm_script_replace=true)",
            )
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _unwritable(
            path,
            "its directory is not yours to write"
            if path.parent.is_dir()
            else f"{path.parent} does not exist",
        )
    if not check:
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            partial.write_text(text, encoding="utf-8")
            # Whatever its name becomes, it holds no secret.
            partial.chmod(0o644)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise _unwritable(path, str(error.strerror)) from error
    return True


def _read(path: Path) -> str | None:
    """Return what a file says; None where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unwritable(path, str(error.strerror)) from error


def _unwritable(path: Path, why: str) -> PlanError:
    return PlanError(
        Problem(
            f"{path} cannot be written: {why}",
            expected="a file in a directory that you may write to",
            found=why,
            where=str(path),
            fix="name another file with --output (-e slurm_script=FILE)",
        )
    )
