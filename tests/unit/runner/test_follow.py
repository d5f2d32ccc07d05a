from pathlib import Path

from vllm_ansible.runner.follow import Follower


def test_a_line_is_read_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    follower = Follower(path)
    assert follower.lines() == []

    word = "é".encode()
    with path.open("ab", buffering=0) as file:
        file.write(b"one\ntwo " + word[:1])
        assert follower.lines() == ["one"]
        file.write(word[1:])
        assert follower.lines() == []
        file.write(b"\n\nthree\n")
    assert follower.lines() == ["two é", "three"]
    assert follower.lines() == []
