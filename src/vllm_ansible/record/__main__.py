"""Render the report of a run again: python -m vllm_ansible.record RUN_DIR."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import events, report


def main() -> None:
    """Write report.html from what the directory holds."""
    parser = argparse.ArgumentParser(
        prog="python -m vllm_ansible.record", description="Render the report of a run again."
    )
    parser.add_argument("run_dir", type=Path, help="a directory below runs/, such as runs/latest")
    directory = parser.parse_args().run_dir
    if not (directory / events.FILE).is_file():
        parser.error(f"{directory} holds no {events.FILE}: give the directory of one run")
    print(report.write(directory))


if __name__ == "__main__":
    main()
