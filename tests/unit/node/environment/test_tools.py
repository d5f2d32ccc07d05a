"""The small environment of the tools: made by what the host has, complete by its mark."""

from __future__ import annotations

from pathlib import Path

from vllm_ansible.node.environment import tools


def test_it_is_complete_only_with_mark_and_programs(tmp_path: Path) -> None:
    place = tmp_path / "tools"
    (place / "bin").mkdir(parents=True)
    assert not tools.complete(str(place), "lock")
    tools.mark(str(place), "lock")
    assert not tools.complete(str(place), "lock")
    for name in ("python", "uv"):
        (place / "bin" / name).touch(mode=0o755)
    assert tools.complete(str(place), "lock")
    assert not tools.complete(str(place), "another lock")


def test_every_way_to_make_it_asks_for_hashes() -> None:
    for uv in (None, "/bin/uv"):
        _, *installs = tools.commands(uv, "/bin/python3", "/c/tools", "/c/tools.txt")
        installs += filter(None, [tools.instead(installs[-1], "/c/tools", "/c/tools.txt")])
        assert len(installs) == (1 if uv else 3)
        assert all("--require-hashes" in one for one in installs)


def test_a_missing_venv_module_names_the_package() -> None:
    said = (
        "The virtual environment was not created successfully because ensurepip is not available."
    )
    assert "python3-venv" in tools.advice(said)
    assert "mirror" in tools.advice("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES")
    assert "proxy" in tools.advice("Could not fetch URL")
