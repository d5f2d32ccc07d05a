"""Write the table and the figure of a sweep beside the record of the run; touches no host."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.sweep.figure import figure
from vllm_ansible.sweep.table import as_csv, as_markdown, summary


class ActionModule(ActionBase):
    """The gate of a sweep: at least one of its points was measured.

    document is what is kept of the sweep, command what a failure shows.
    """

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the evidence with the files that were written, or that no point could be had."""
        result = dict(super().run(tmp, task_vars))
        document = plain(self._task.args["document"])
        engine, points = document["engine"], document["points"]
        if self._task.check_mode:
            return {**result, "skipped": True, "msg": "check mode: nothing is measured"}
        files = _written(engine, points) if points else []
        if not any(point["ok"] for point in points):
            first: dict[str, str] = next((point["failure"] for point in points), {})
            return {
                **result,
                "failed": True,
                "msg": summary(engine, points),
                "expected": "at least one point that the engine can serve",
                "found": first.get("found") or first.get("msg") or "no point at all",
                "cause": first.get("cause", ""),
                "where": ", ".join(files) or engine,
                "fix": first.get("fix") or "choose points that fit the engine's memory",
            }
        shown = f" ({', '.join(files)})" if files else ""
        return {
            **result,
            "changed": False,
            "evidence": {
                "gate": "sweep",
                "summary": summary(engine, points) + shown,
                "values": {"engine": engine, "points": points, "files": files},
            },
        }


def _written(engine: str, points: list[dict[str, Any]]) -> list[str]:
    """Write JSON, CSV, Markdown and the figure; nothing where no run is recorded."""
    run_dir = os.environ.get("VLLM_ANSIBLE_RUN_DIR")
    if not run_dir:
        return []
    name = f"sweep-{engine}"
    title = f"{engine}: throughput over max_num_seqs"
    content = {
        "json": json.dumps({"engine": engine, "points": points}, indent=2) + "\n",
        "csv": as_csv(points),
        "md": as_markdown(engine, points, f"{name}.svg"),
        "svg": figure(title, points),
    }
    files = []
    for ending, text in content.items():
        path = Path(run_dir, f"{name}.{ending}")
        path.write_text(text, encoding="utf-8")
        files.append(str(path))
    return files
