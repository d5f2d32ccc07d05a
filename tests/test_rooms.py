"""Rooms of the source import in one order alone, that of the table in CONTRIBUTING.md.

The order is a line, so no import can go round in a circle between rooms.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import FrameType

from tests.unit.plan.test_golden import SITES, golden

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PACKAGE = "vllm_ansible"


def rooms(document: str) -> list[str]:
    """Return the rooms of the table, from the floor up: folders and single files of the package."""
    cells = re.findall(r"^\| (.*?) \| ", document, re.MULTILINE)
    paths = [path for cell in cells for path in re.findall(rf"`src/{PACKAGE}/([^`]+)`", cell)]
    pieces = ([part.split(",") for part in re.split(r"[{}]", path)] for path in paths)
    return ["".join(choice).rstrip("/") for path in pieces for choice in product(*path)]


def room_of(path: str, order: list[str]) -> str | None:
    """Return the room of a file, the narrowest that holds it; None without any."""
    holding = (room for room in order if path == room or path.startswith(f"{room}/"))
    return max(holding, key=len, default=None)


def imported(file: Path, source: Path) -> Iterator[str]:
    """Yield the files of the package that a file imports, at whatever depth of its code."""
    parents = file.relative_to(source).parent.parts
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else ()
            base = [*above, *(node.module or "").split(".")] if node.module else [*above]
            names = [[*base, alias.name] for alias in node.names]
        for name in names:
            # The last part is a module, or something inside one.
            for parts in (name, name[:-1]):
                place = source.joinpath(*parts)
                found = [place.with_suffix(".py"), place / "__init__.py"] if parts else []
                there = [one for one in found if one.is_file()]
                if there:
                    yield str(there[0].relative_to(source / PACKAGE))
                    break


def refused(source: Path, order: list[str]) -> list[str]:
    """Return what is wrong: files without a room, and imports against the order."""
    wrong = []
    for file in sorted((source / PACKAGE).rglob("*.py")):
        path = str(file.relative_to(source / PACKAGE))
        room = room_of(path, order)
        if room is None:
            wrong += [f"{path} is in no room of the table"] if path != "__init__.py" else []
            continue
        others = {(other, room_of(other, order)) for other in imported(file, source)}
        wrong += [
            f"{path} imports {other}: {target} stands after {room}"
            for other, target in sorted(others, key=str)
            if target is not None and order.index(target) > order.index(room)
        ]
    return wrong


def circles(source: Path) -> list[list[str]]:
    """Return the files that import each other in a circle, at whatever depth of their code."""
    files = (source / PACKAGE).rglob("*.py")
    imports = {
        str(file.relative_to(source / PACKAGE)): set(imported(file, source)) for file in files
    }
    # What imports nothing that is left, or is imported by nothing that is left, is in no circle.
    for way in (imports, _turned(imports)):
        while ends := [one for one, others in way.items() if not others & way.keys() - {one}]:
            for one in ends:
                del way[one]
        imports = {one: others & way.keys() for one, others in imports.items() if one in way}
    found = {frozenset(_reached(one, imports) & _reached(one, _turned(imports))) for one in imports}
    return sorted(sorted(one) for one in found if len(one) > 1)


def _turned(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return by whom each is imported."""
    return {one: {other for other in imports if one in imports[other]} for one in imports}


def _reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Return a file and all that it leads to."""
    found, left = {start}, [start]
    while left:
        more = imports[left.pop()] - found
        found |= more
        left += more
    return found


def table() -> list[str]:
    return rooms((ROOT / "CONTRIBUTING.md").read_text())


def test_a_room_imports_only_what_stands_before_it() -> None:
    assert refused(SOURCE, table()) == []


def test_no_file_leads_back_to_itself() -> None:
    assert circles(SOURCE) == []


def test_every_room_of_the_table_is_there_and_stands_there_once() -> None:
    order = table()
    assert len(order) > 30
    assert [room for room in order if not (SOURCE / PACKAGE / room).exists()] == []
    assert len(set(order)) == len(order)


def test_the_floor_imports_nothing_of_ours() -> None:
    floor = [room for room in table() if "/" not in room and room.endswith(".py")][:3]
    assert floor == ["frozen.py", "problem.py", "terminal.py"]
    found = {one for name in floor for one in imported(SOURCE / PACKAGE / name, SOURCE)}
    assert found <= {"frozen.py", "__init__.py"}


def test_an_engine_goes_from_the_inventory_to_its_processes_through_few_rooms() -> None:
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        golden(SITES["data-ranks"])
    finally:
        sys.setprofile(before)
    base, order = f"{SOURCE / PACKAGE}/", table()
    rooms_seen = {room_of(one[len(base) :], order) for one in seen if one.startswith(base)}
    assert {"plan", "plan/estimate/layouts", "node/process"} <= rooms_seen
    assert len(rooms_seen) <= 15


def made(place: Path, **files: str) -> Path:
    """Return a source tree with these files; two underscores in a name are a slash."""
    for name, text in files.items():
        file = place / PACKAGE / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        for folder in file.parents:
            if folder == place:
                break
            (folder / "__init__.py").touch()
    return place


TABLE = """
| | |
|---|---|
| `src/vllm_ansible/floor.py` | below everything |
| `src/vllm_ansible/house/{cellar,hall}/` | below the roof |
| `src/vllm_ansible/house/` | what joins them |
"""
ORDER = ["floor.py", "house/cellar", "house/hall", "house"]


def test_the_order_is_that_of_the_table() -> None:
    assert rooms(TABLE) == ORDER


def test_imports_downwards_pass(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        floor="import os\n",
        house__cellar__wine="from vllm_ansible.floor import laid\n",
        house__hall__door="from ..cellar import wine\nfrom . import lamp\n",
        house__hall__lamp="from vllm_ansible import floor\n",
        house__roof="from .hall.door import opened\nfrom .cellar import wine\n",
    )
    assert refused(source, ORDER) == []


def test_an_import_upwards_is_refused_however_it_is_written(tmp_path: Path) -> None:
    upwards = (
        "from ..hall import door\n",
        "from ..hall.door import opened\n",
        "import vllm_ansible.house.hall.door\n",
        "from vllm_ansible.house.hall import door as way_out\n",
        "def late():\n    from vllm_ansible.house.hall.door import opened\n",
    )
    for number, line in enumerate(upwards):
        source = made(tmp_path / str(number), house__hall__door="", house__cellar__wine=line)
        assert refused(source, ORDER) == [
            "house/cellar/wine.py imports house/hall/door.py: house/hall stands after house/cellar"
        ]


def test_a_circle_is_refused_in_whatever_order_its_rooms_stand(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        house__cellar__wine="from vllm_ansible.house.hall.door import opened\n",
        house__hall__door="from vllm_ansible.house.cellar.wine import bottle\n",
    )
    assert len(refused(source, ORDER)) == 1
    assert len(refused(source, ["house/hall", "house/cellar", "house"])) == 1


def test_a_circle_inside_a_room_is_named_by_its_files(tmp_path: Path) -> None:
    source = made(
        tmp_path,
        house__hall__door="from . import lamp\nfrom .. import roof\n",
        house__hall__lamp="def late():\n    from .switch import on\n",
        house__hall__switch="from typing import Any\nif Any:\n    from . import lamp\n",
        house__hall__chair="from . import door, lamp\n",
        house__roof="import os\n",
    )
    assert circles(source) == [["house/hall/lamp.py", "house/hall/switch.py"]]


def test_a_file_in_no_room_is_refused(tmp_path: Path) -> None:
    source = made(tmp_path, floor="", shed__spade="")
    assert refused(source, ORDER) == [
        "shed/__init__.py is in no room of the table",
        "shed/spade.py is in no room of the table",
    ]
