"""Where a lab keeps its state, its inventory and its shared caches."""

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
DEFAULT_NAME = "lab"


def cache_root() -> Path:
    """Return the directory of this machine that outlives every lab."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vllm-ansible" / "lab"


@dataclass(frozen=True)
class LabPaths:
    """The places of one lab on this machine."""

    name: str
    state: Path
    inventory: Path

    @property
    def record(self) -> Path:
        """What was made, so that exactly that can be removed."""
        return self.state / "lab.json"

    @property
    def key(self) -> Path:
        """The private key that opens every host of this lab."""
        return self.state / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The host keys, pinned before the hosts start."""
        return self.state / "known_hosts"

    @property
    def lock(self) -> Path:
        """Held while a command changes this lab; beside the state, which `down` removes."""
        return self.state.parent / f".{self.name}.lock"


def lab_paths(name: str, inventory: Path | None = None, root: Path = REPOSITORY) -> LabPaths:
    """Return the places of a lab; only the lab named `lab` writes the repository's inventory."""
    state = root / "state" / "lab" / name
    default = root / "inventories" / "lab" if name == DEFAULT_NAME else state / "inventory"
    return LabPaths(name, state, (inventory or default).absolute())
