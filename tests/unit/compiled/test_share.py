"""The action, played for real: what one host has compiled is kept and given to the next one."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

ENGINE = {
    "name": "chat",
    "arguments": ["--max-model-len", "1024"],
    "layout": {"tensor": 1, "pipeline": 1},
    "model": "smollm2",
    "model_source": "package",
}
CODE = "vllm/torch_compile_cache/1/rank_0_0/code.py"


class Site:
    """Hosts that are all this machine, each with a cluster's directory of its own."""

    def __init__(self, play: Any, directory: Path) -> None:
        self.play, self.directory = play, directory

    def cache(self, host: str) -> Path:
        return self.directory / "hosts" / host / "engines/chat/cache"

    def compiles(self, host: str) -> None:
        path = self.cache(host) / CODE
        path.parent.mkdir(parents=True)
        path.write_text("compiled")

    def step(
        self,
        state: str,
        host: str,
        cluster: str = "r1",
        remote_code: bool = False,
        check: bool = False,
        **changed: Any,
    ) -> dict[str, Any]:
        facts = {"architecture": "x86_64", "accelerator_name": "", "service_user": ""}
        share = {
            "state": state,
            "engine": {**ENGINE, **changed},
            "host": {**facts, "cluster_dir": str(self.directory / "hosts" / host)},
            "cluster": cluster,
            "remote_code": remote_code,
            "fingerprint": "one",
            "kept_dir": str(self.directory / "kept"),
        }
        return {"engine_compiled_share": share, "check_mode": check}

    def run(self, *steps: dict[str, Any]) -> list[Any]:
        """Return what came of each step, all of one play."""
        ran = self.play([{"name": str(number), **one} for number, one in enumerate(steps)])
        found = [ran[str(number)] for number in range(len(steps))]
        assert not [one for one in found if one.get("failed")], found
        return found

    def changed(self, *steps: dict[str, Any]) -> list[bool]:
        return [one["changed"] for one in self.run(*steps)]


@pytest.fixture
def site(play: Any, tmp_path: Path) -> Site:
    return Site(play, tmp_path)


def test_the_next_host_gets_what_the_first_one_compiled(site: Site) -> None:
    site.compiles("one")
    kept, taken = site.step("kept", "one"), site.step("taken", "two")
    checked = site.step("taken", "two", check=True)
    # What a check had brought would not be brought again.
    assert site.changed(kept, checked, taken, taken) == [False, True, True, False]
    assert (site.cache("two") / CODE).read_text() == "compiled"


def test_nothing_is_kept_of_an_engine_that_compiles_nothing(site: Site) -> None:
    site.cache("one").mkdir(parents=True)
    assert site.changed(site.step("kept", "one")) == [False]
    assert not list(site.directory.glob("kept/*"))


def test_another_engine_or_a_damaged_archive_is_not_taken(site: Site) -> None:
    site.compiles("one")
    kept, taken = site.step("kept", "one"), site.step("taken", "two")
    other = site.step("taken", "two", arguments=["--max-model-len", "512"])
    assert site.changed(kept, other) == [False, False]
    (archive,) = site.directory.glob("kept/*/compiled.tar.gz")
    archive.write_bytes(b"damaged")
    # And it is brought anew.
    assert site.changed(taken, kept, taken) == [False, False, True]
    (record,) = site.directory.glob("kept/*/compiled.json")
    assert json.loads(record.read_text())["files"] == 1


def test_what_cannot_be_kept_is_a_warning_and_no_failure(site: Site) -> None:
    site.compiles("one")
    (site.directory / "kept").write_text("a file in the way")
    ((warning,),) = (one["warnings"] for one in site.run(site.step("kept", "one")))
    assert "is not shared between hosts" in str(warning)
    assert str(site.directory / "kept") in str(warning)


def test_another_cluster_takes_none_of_it(site: Site) -> None:
    site.compiles("one")
    other = site.step("taken", "two", cluster="r2")
    steps = (site.step("kept", "one"), other, site.step("taken", "two"))
    assert site.changed(*steps) == [False, False, True]


@pytest.mark.parametrize("argument", ["--trust-remote-code", "--trust_remote"])
def test_what_a_models_own_code_may_have_left_stays_where_it_is(site: Site, argument: str) -> None:
    site.compiles("one")
    kept, taken = (
        functools.partial(site.step, *words, arguments=[argument])
        for words in (("kept", "one"), ("taken", "two"))
    )
    site.run(kept())
    assert not list(site.directory.glob("kept/*"))
    # Kept because it was allowed; taken where it is, too.
    assert site.changed(kept(remote_code=True), taken(), taken(remote_code=True))[1:] == [
        False,
        True,
    ]
