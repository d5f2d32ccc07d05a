"""What a row of tests shares is there for all of them, and for nobody after."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

TWO, SLURM = "tests/flows/test_two_hosts.py::a", "tests/flows/test_slurm.py::a"
UNIT = "tests/unit/test_row_end.py::a"


@pytest.mark.parametrize(
    ("this", "following", "ends"),
    [
        (TWO, "tests/flows/test_weights_early.py::a", False),
        (SLURM, "tests/lab/test_slurm_script.py::a", False),
        (SLURM, TWO, True),
        ("tests/lab/test_slurm_script.py::a", UNIT, True),
        (TWO, None, True),
    ],
)
def test_it_ends_with_the_last_test_of_the_row(
    this: str, following: str | None, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, ended = ExitStack(), []
    shared.callback(ended.append, this)
    monkeypatch.setattr(conftest, "OF_ROW", shared)
    item: Any = SimpleNamespace(nodeid=this)
    after: Any = SimpleNamespace(nodeid=following) if following else None
    torn = conftest.pytest_runtest_teardown(item, after)
    next(torn)
    assert not ended, "before fixtures of the test itself"
    with suppress(StopIteration):
        torn.send(None)
    assert bool(ended) is ends


def test_tests_of_a_row_follow_each_other_also_in_one_process() -> None:
    paths = [
        "tests/flows/test_slurm.py",
        "tests/flows/test_two_hosts.py",
        "tests/lab/test_slurm.py",
    ]
    items: list[Any] = [
        SimpleNamespace(
            nodeid=f"{path}::a", path=path, fixturenames=[], iter_markers=lambda *_: iter(())
        )
        for path in (*paths, "tests/unit/test_row_end.py")
    ]
    conftest.pytest_collection_modifyitems(items)
    assert [one.path for one in items] == [
        paths[0],
        paths[2],
        paths[1],
        "tests/unit/test_row_end.py",
    ]
