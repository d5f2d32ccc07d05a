"""Keys on the controller and where they go on hosts; real plays."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
ME = pwd.getpwuid(os.getuid()).pw_name


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_keys_are_made_once_or_taken_from_the_head_or_the_user(play: Any, tmp_path: Path) -> None:
    head, state = tmp_path / "head", tmp_path / "state"
    own, closed = tmp_path / "own/key", tmp_path / "own/none"
    head.mkdir()
    (head / "ray_token").write_text("t-of-the-head")
    own.parent.mkdir()
    own.parent.chmod(0o755)
    own.write_text("k-of-the-user")

    def keys(name: str, given: Path | None = None, **more: Any) -> dict[str, Any]:
        arguments = {"state_dir": str(state), "head_directory": str(head)}
        own = {"given": {"api_key": str(given)}} if given else {}
        return {"name": name, "cluster_secrets": {**arguments, **own}, **more}

    played = play(
        [
            keys("check", check_mode=True),
            keys("made"),
            keys("again"),
            keys("the user's own", own),
            keys("a name that does not exist", closed),
        ]
    )
    assert played["check"]["made"] == []
    assert played["made"]["changed"] and played["made"]["made"] == ["ray_token", "api_key"]
    assert played["made"]["files"] == {name: f"{state}/{name}" for name in ("ray_token", "api_key")}
    assert mode(state) == 0o700
    assert all(mode(path) == 0o600 for path in state.iterdir())
    # Whoever clones the repository anew works on with the keys that the cluster has.
    assert (state / "ray_token").read_text() == "t-of-the-head"
    made = (state / "api_key").read_text()
    # Nothing in it that a command line or a configuration file could take for something else.
    assert re.fullmatch("[0-9a-f]{64}", made)
    assert not played["again"]["changed"]
    assert played["the user's own"]["files"]["api_key"] == str(own)
    assert not played["the user's own"]["changed"] and mode(own.parent) == 0o755
    refused = played["a name that does not exist"]
    assert refused["failed"]
    assert refused["msg"].endswith(f"the secret api_key is expected in {closed}: no such file")
    assert not closed.exists() and mode(closed.parent) == 0o755
    assert not any(secret in str(played) for secret in (made, "t-of-the-head", "k-of-the-user"))


def test_a_key_that_vllm_takes_for_an_argument_is_made_anew(play: Any, tmp_path: Path) -> None:
    head, state = tmp_path / "head", tmp_path / "state"
    for place in (head, state):
        place.mkdir()
        (place / "api_key").write_text("-xT_of_an_earlier_version")
        (place / "ray_token").write_text("t")
    arguments = {"state_dir": str(state), "head_directory": str(head)}
    task = {"cluster_secrets": arguments}
    played = play([{"name": "mended", **task}, {"name": "again", **task}])
    assert played["mended"]["made"] == ["api_key"]
    assert re.fullmatch("[0-9a-f]{64}", (state / "api_key").read_text())
    assert mode(state / "api_key") == 0o600
    assert not played["again"]["changed"]


def test_a_key_that_a_power_failure_left_empty_is_made_anew(play: Any, tmp_path: Path) -> None:
    head, state, own = tmp_path / "head", tmp_path / "state", tmp_path / "own"
    for place in (head, state):
        place.mkdir()
    (state / "api_key").touch()
    (state / "ray_token").touch()
    (head / "ray_token").write_text("t-of-the-head")
    own.touch()
    arguments = {"state_dir": str(state), "head_directory": str(head)}
    given = {"cluster_secrets": {**arguments, "given": {"api_key": str(own)}}}
    played = play([{"name": "own", **given}, {"name": "made", "cluster_secrets": arguments}])
    assert played["own"]["failed"] and f"in {own} is empty" in played["own"]["msg"]
    assert "api_key" in played["made"]["made"]
    assert re.fullmatch("[0-9a-f]{64}", (state / "api_key").read_text())
    assert (state / "ray_token").read_text() == "t-of-the-head"


def test_secrets_go_from_files_of_the_controller_to_files_of_a_host(
    play: Any, tmp_path: Path
) -> None:
    source, missing, host = tmp_path / "api_key", tmp_path / "none", tmp_path / "host"
    source.write_text("k-123456\n")
    (host / "a").mkdir(parents=True)
    # As after `git clean`, or in another clone: nothing of this cluster is there.
    lost = ROOT / "state/never-made/api_key"

    def put(name: str, path: Path = source, **more: Any) -> dict[str, Any]:
        arguments = {
            "directory": str(host),
            "owner": ME,
            "files": {"a/key.yaml": str(path)},
            "wrap": "api-key: %s\n",
            "contents": {"a/names.json": "[]\n"},
        }
        return {"name": name, "secret_files": arguments, **more}

    played = play(
        [
            put("check", check_mode=True),
            put("written"),
            put("again"),
            put("missing", missing),
            put("lost", lost),
            put("missing in check mode", missing, check_mode=True),
        ]
    )
    assert played["check"]["written"] == ["a/key.yaml", "a/names.json"]
    assert played["written"]["written"] == ["a/key.yaml", "a/names.json"]
    assert (host / "a/key.yaml").read_text() == "api-key: k-123456\n"
    assert (host / "a/names.json").read_text() == "[]\n"
    assert mode(host / "a/key.yaml") == 0o600
    assert played["written"]["changed"] and not played["again"]["changed"]
    refused = played["missing"]
    assert refused["failed"]
    assert refused["msg"].endswith(f"the secret a/key.yaml is expected in {missing}: no such file")
    assert refused["fix"] == "put it there, or correct the variable that names it"
    assert played["lost"]["where"] == str(lost)
    assert "run the stage prepare first" in played["lost"]["fix"]
    assert played["missing in check mode"]["changed"]
    assert "k-123456" not in str(played)
