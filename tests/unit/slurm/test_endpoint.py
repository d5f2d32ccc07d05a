"""What users read of a served cluster, and what is left for nobody to read after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_ansible.slurm.endpoint import published, tunnel
from vllm_ansible.slurm.leftovers import leftovers, remove
from vllm_ansible.slurm.settings import Settings

ENGINE = {
    "name": "chat",
    "served_name": "deepseek-ai/DeepSeek-R1",
    "hosts": ["r1-0", "r1-1"],
    "ports": {"api": 8000},
}


def test_a_laptop_reaches_every_engine_by_way_of_the_login_node() -> None:
    words = tunnel(["http://10.1.0.1:8000/v1", "http://10.1.0.2:8001"], "ann@login1")
    assert words == [
        *("ssh", "-N", "-L", "8000:10.1.0.1:8000", "-L", "8001:10.1.0.2:8001", "ann@login1")
    ]


def test_each_data_rank_is_an_address_of_its_own() -> None:
    ranks = [{"rank": 0, "host": "r1-0", "device": 0}, {"rank": 1, "host": "r1-1", "device": 0}]
    engine = {
        **ENGINE,
        "layout": {"tensor": 1, "pipeline": 1, "data": 2},
        "ports": {"api": 8000, "worker_first": 20020},
        "ranks": ranks,
    }
    addresses = {"r1-0": "10.1.0.1", "r1-1": "10.1.0.2"}
    told = published([engine], addresses, "/home/ann/key", "12", 0, "ann@l1")
    (one,) = told["engines"]
    assert one["urls"] == ["http://10.1.0.1:20020/v1", "http://10.1.0.2:20021/v1"]
    assert one["url"] == one["urls"][0]
    ways = "-L 20020:10.1.0.1:20020 -L 20021:10.1.0.2:20021"
    assert told["from_a_laptop"] == f"ssh -N {ways} ann@l1"


def test_what_is_published_says_where_which_and_until_when() -> None:
    told = published([ENGINE], {"r1-0": "10.1.0.1"}, "/home/ann/key", "12", 1795373996, "ann@l1")
    assert told["engines"] == [
        {
            "name": "chat",
            "model": "deepseek-ai/DeepSeek-R1",
            "url": "http://10.1.0.1:8000/v1",
        }
    ]
    assert told["until"] == "2026-11-22T18:59:56+00:00"
    assert told["drains_at"] is None
    assert (told["job"], told["api_key_file"]) == ("12", "/home/ann/key")
    assert told["from_a_laptop"] == "ssh -N -L 8000:10.1.0.1:8000 ann@l1"


def test_what_is_published_says_when_no_more_requests_are_taken() -> None:
    told = published([], {}, "/key", "12", 1795373996, "ann@l1", 1795373696)
    assert told["drains_at"] == "2026-11-22T18:54:56+00:00"


def test_a_job_without_a_limit_has_no_end() -> None:
    assert published([], {}, "/key", "12", 0, "ann@l1")["until"] is None


def made(directory: Path) -> Settings:
    own = directory / "r1"
    for name in ("r1-0/processes", "r1-1/logs", "r1-results", "data", "environments/mine"):
        (own / name).mkdir(parents=True)
    for name in ("slurm-12.log", "endpoint.json", "notes.txt"):
        (own / name).write_text("x")
    (own / "draining-12-0/1").mkdir(parents=True)
    return Settings("r1", 2, str(directory))


def test_what_the_job_wrote_goes_and_what_its_nodes_keep_stays(tmp_path: Path) -> None:
    wanted = made(tmp_path)
    names = [Path(one).name for one in remove(wanted, everything=False)]
    assert names == ["slurm-12.log", "endpoint.json", "draining-12-0"]
    assert (tmp_path / "r1/r1-0/processes").is_dir()
    assert leftovers(wanted, everything=False) == []


def test_everything_is_what_is_known_to_be_ours(tmp_path: Path) -> None:
    remove(made(tmp_path), everything=True)
    left = sorted(path.name for path in (tmp_path / "r1").iterdir())
    assert left == ["data", "environments", "notes.txt", "r1-results"]


def test_an_empty_directory_goes_too_and_one_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    wanted = Settings("r1", 2, str(tmp_path))
    (tmp_path / "r1/r1-0/tasks").mkdir(parents=True)
    (tmp_path / "r1/environments/abc").mkdir(parents=True)
    (tmp_path / "r1/environments/abc/manifest.json").write_text("{}")
    remove(wanted, everything=True)
    assert not (tmp_path / "r1").exists()
    assert remove(wanted, everything=True) == []


def test_a_file_that_only_this_machine_still_sees_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = made(tmp_path)
    own = tmp_path / "r1/endpoint.json"
    seen = leftovers(wanted, everything=False)
    own.unlink()
    monkeypatch.setattr("vllm_ansible.slurm.leftovers.leftovers", lambda *_: seen)
    assert str(own) in remove(wanted, everything=False)
