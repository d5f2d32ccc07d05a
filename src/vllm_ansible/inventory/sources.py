"""Find the file and line where a variable was set, for people who have to correct it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

SUFFIXES = ("", ".yml", ".yaml", ".json")
# The parser Ansible uses: libyaml reads some files that the Python one refuses ({a: why?, b: c}).
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Place:
    """One line of one file that sets a variable for a group or a host."""

    path: Path
    line: int
    # The group or host whose variables these are.
    owner: str

    def shown(self, below: Path) -> str:
        """Return the place as file:line, shortened to what lies below a directory."""
        path = self.path.resolve()
        base = below.resolve()
        shown = path.relative_to(base) if path.is_relative_to(base) else path
        return f"{shown}:{self.line}"


@dataclass
class Sources:
    """Every variable that files of an inventory set, in rising precedence."""

    places: dict[str, list[Place]] = field(default_factory=dict)

    def of(self, name: str, hosts: Sequence[str] = (), groups: Sequence[str] = ()) -> list[Place]:
        """Return where a variable is set for these hosts: what is theirs alone comes first."""
        found = self.places.get(name, [])
        for owners in (hosts, groups):
            own = [place for place in found if place.owner in owners]
            if own:
                return own
        return found

    def add(self, name: str, place: Place) -> None:
        """Remember one more place."""
        self.places.setdefault(name, []).append(place)


def read_sources(inventories: Iterable[Path], playbook_dir: Path | None) -> Sources:
    """Return where the variables of these inventories are set; unreadable files are skipped.

    Ansible itself refuses a file it cannot parse, with its own message.
    """
    sources = Sources()
    files = [file for source in inventories for file in _inventory_files(source)]
    for file in files:
        for name, place in _inventory_places(file):
            sources.add(name, place)
    beside = {file.parent for file in files} | ({playbook_dir} if playbook_dir else set())
    for kind in ("group_vars", "host_vars"):
        for directory in sorted(beside):
            for file, owner in _variable_files(directory / kind):
                for name, line in _top_level(file):
                    sources.add(name, Place(file, line, owner))
    return sources


def _inventory_files(source: Path) -> list[Path]:
    """Return the files of one inventory argument."""
    if source.is_dir():
        return sorted(
            path
            for path in source.iterdir()
            if path.is_file() and not path.name.startswith(".") and path.suffix not in (".pyc",)
        )
    return [source] if source.is_file() else []


def _variable_files(directory: Path) -> Iterator[tuple[Path, str]]:
    """Return the files of group_vars or host_vars with the group or host they are for."""
    if not directory.is_dir():
        return
    # `all` first: what is set for everyone yields to what is set for some.
    for path in sorted(directory.iterdir(), key=lambda entry: (entry.stem != "all", entry.name)):
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.is_file() and file.suffix in SUFFIXES:
                    yield file, path.name
        elif path.suffix in SUFFIXES:
            yield path, path.stem


def _compose(path: Path) -> yaml.Node | None:
    """Return the nodes of a YAML file without building values, so that vaults and tags pass."""
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


def _pairs(node: yaml.Node | None) -> list[tuple[str, int, yaml.Node]]:
    """Return the keys of a mapping with their lines and values."""
    if not isinstance(node, yaml.MappingNode):
        return []
    return [(str(key.value), key.start_mark.line + 1, value) for key, value in node.value]


def _top_level(path: Path) -> list[tuple[str, int]]:
    """Return the variables a file sets, with their lines."""
    return [(name, line) for name, line, _ in _pairs(_compose(path))]


def _inventory_places(path: Path) -> Iterator[tuple[str, Place]]:
    """Return the variables an inventory file itself sets."""
    root = _compose(path)
    if isinstance(root, yaml.MappingNode):
        for group, _, body in _pairs(root):
            yield from _group_places(path, group, body)
    else:
        yield from _ini_places(path)


def _group_places(path: Path, group: str, body: yaml.Node) -> Iterator[tuple[str, Place]]:
    """Return the variables of one group of a YAML inventory, and of its hosts and children."""
    for key, _, value in _pairs(body):
        if key == "vars":
            for name, line, _ in _pairs(value):
                yield name, Place(path, line, group)
        elif key == "hosts":
            for host, _, variables in _pairs(value):
                for name, line, _ in _pairs(variables):
                    yield name, Place(path, line, host)
        elif key == "children":
            for child, _, inner in _pairs(value):
                yield from _group_places(path, child, inner)


def _ini_places(path: Path) -> Iterator[tuple[str, Place]]:
    """Return the variables of an INI inventory: after a host, or in a section [group:vars]."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    section = ""
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith(("#", ";")) or not text:
            continue
        header = re.fullmatch(r"\[([^\]]+)\]", text)
        if header:
            section = header[1]
            continue
        in_vars = section.endswith(":vars")
        owner = section.removesuffix(":vars") if in_vars else text.split()[0]
        found = re.findall(r"^(\w+)\s*=" if in_vars else r"\s(\w+)=", text)
        for name in found:
            yield name, Place(path, number, owner)
