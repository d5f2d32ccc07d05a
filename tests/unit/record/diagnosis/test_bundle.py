"""What is handed on holds no secret, belongs to its owner, and replaces nothing."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from vllm_ansible.cli import diagnose as command
from vllm_ansible.cli.main import main
from vllm_ansible.record.diagnosis import bundle
from vllm_ansible.record.diagnosis.evidence import Evidence, of, of_directory
from vllm_ansible.record.diagnosis.page import explain

TOKEN = "hf_" + "a" * 34
LOG = f"INFO HF_TOKEN={TOKEN}\nRuntimeError: No CUDA GPUs are available\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "collected"
    (directory / "gpu-1").mkdir(parents=True)
    (directory / "gpu-1/serve.log").write_text(LOG)
    event = {"event": "evidence", "gate": "reach", "values": {"token": TOKEN, "blocked": 0}}
    (directory / "events.jsonl").write_text(json.dumps(event) + "\n")
    (directory / "verify.json").write_text(json.dumps({"clocks": {"gpu-1": 2.5}, "x": TOKEN}))
    return directory


def members(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {}
        for one in archive.getmembers():
            content = archive.extractfile(one)
            assert content and one.mode == 0o600
            found[one.name.removeprefix("diagnosis/")] = content.read().decode()
        return found


def test_all_of_it_is_there_and_no_secret_is(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.tar.gz"
    words = ["diagnose", "--logs", str(logs), "--bundle", str(file)]
    assert main(words) == command.FOUND
    found = members(file)
    assert set(found) == {
        *("diagnosis.txt", "diagnosis.json", "facts.json", "events.jsonl", "verify.json"),
        "logs/gpu-1/serve.log",
    }
    assert not [name for name, text in found.items() if TOKEN in text]
    assert "No CUDA GPUs are available" in found["logs/gpu-1/serve.log"]
    assert "CUDA_VISIBLE_DEVICES" in found["diagnosis.txt"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert "6 files, redacted, for its owner alone" in capsys.readouterr().err


def test_a_bundle_is_read_as_the_logs_it_was_made_of(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, unpacked = tmp_path / "out.tar.gz", tmp_path / "unpacked"
    main(["diagnose", "--logs", str(logs), "--json", "--bundle", str(file)])
    first = json.loads(capsys.readouterr().out)
    with tarfile.open(file) as archive:
        # Debian 12 has Python 3.11.2, whose extractall takes no filter yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(unpacked)  # noqa: S202  the bundle was made here
    main(["diagnose", "--logs", str(unpacked / "diagnosis"), "--json"])
    again = json.loads(capsys.readouterr().out)
    assert {**again, "where": "", "host": "", "evidence": []} == {
        **first,
        **{"where": "", "host": "", "evidence": []},
    }
    assert of_directory(unpacked / "diagnosis").clocks == {"gpu-1": 2.5}


def test_a_file_that_is_there_is_left_as_it_is(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.tar.gz"
    file.write_text("mine")
    assert main(["diagnose", "--logs", str(logs), "--bundle", str(file)]) == command.REFUSED
    assert file.read_text() == "mine"
    assert "found a file at" in capsys.readouterr().err
    # Also one that came while the logs were read.
    with pytest.raises(bundle.BundleExists):
        bundle.write(file, {}, explain({}), Evidence())


def test_a_link_leads_nowhere(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    with pytest.raises(bundle.BundleExists):
        bundle.write(link, {}, explain({}), Evidence())
    assert not (tmp_path / "target").exists()


def test_half_an_archive_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(bundle, "_add", broken)
    with pytest.raises(OSError, match="the disk is full"):
        bundle.write(tmp_path / "out", {}, explain({}), Evidence())
    assert not (tmp_path / "out").exists()


def test_names_of_logs_lead_nowhere_outside(tmp_path: Path) -> None:
    logs = {"../../etc/x": "one", "/abs/y z.gz": "two", "..": "three"}
    facts = of("gpu-1", {"devices": 8}, "preflight")
    names = bundle.write(tmp_path / "out", logs, explain(logs), Evidence(facts))
    assert names[3:] == ["logs/etc/x", "logs/abs/y-z", "logs/log"]
