"""On hosts without an accelerator nothing is measured, and the record says so."""

import json
import os
from pathlib import Path

from testinfra.host import Host

RUNS = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "runs"


def test_the_evidence_says_that_there_is_nothing_to_probe(host: Host) -> None:
    events = max(RUNS.glob("*/events.jsonl"), key=lambda path: path.stat().st_mtime)
    found = [json.loads(line) for line in events.read_text().splitlines()]
    gates = {one["gate"]: one["summary"] for one in found if one["event"] == "evidence"}
    assert gates["devices"] == "no accelerator that can be probed"
    assert host.run("ls /dev/nvidia0").rc != 0
