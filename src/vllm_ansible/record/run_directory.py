"""The directory of one run: runs/<id>/."""

from __future__ import annotations

import os
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
LATEST = "latest"


def runs_directory(config_file: str | None = None) -> Path:
    """Return where runs are kept: where the environment says, else beside the ansible.cfg in use.

    The machine's or the user's own configuration belongs to no project: then, and without any,
    the runs stay in the checkout. Where this user may not write there, as in a checkout that
    several people share, they are kept in his own home.
    """
    if chosen := os.environ.get("VLLM_ANSIBLE_RUNS_DIR"):
        return Path(chosen).expanduser().absolute()
    config = Path(config_file) if config_file else None
    ours = config and config.name == "ansible.cfg" and config.parent != Path("/etc/ansible")
    runs = (config.parent if config and ours else REPOSITORY) / "runs"
    if os.access(runs if runs.is_dir() else runs.parent, os.W_OK | os.X_OK):
        return runs
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(home) / "vllm-ansible" / "runs"


def new_id(cluster: str | None = None) -> str:
    """Return a name for a run that sorts by time and cannot meet another run's."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = re.sub(r"[^A-Za-z0-9-]+", "-", cluster or "").strip("-")
    return "-".join(part for part in (moment, name, secrets.token_hex(2)) if part)


def create(runs: Path, cluster: str | None = None) -> Path:
    """Make the directory of a new run, readable by its owner alone, and point `latest` at it."""
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = runs / new_id(cluster)
    directory.mkdir(mode=0o700)
    _point_latest(runs, directory)
    return directory


def _point_latest(runs: Path, directory: Path) -> None:
    """Replace the link in one step: two runs may start in the same moment."""
    link = runs / f".{LATEST}-{directory.name}"
    link.symlink_to(directory.name)
    link.replace(runs / LATEST)
