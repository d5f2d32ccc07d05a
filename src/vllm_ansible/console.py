"""The entry of the command `vllm-ansible`: planning starts in milliseconds, all else in its own."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Do what the command line says; only the verb that runs is imported."""
    if sys.argv[1:2] == ["plan"]:
        # A plan makes thousands of small objects and ends: looking for cycles is a fifth of it.
        gc.disable()
        from vllm_ansible.layouts.command import main as plan

        return plan(sys.argv[2:])
    if sys.argv[1:2] == ["send"]:
        from vllm_ansible.batch.command import main as send

        return send(sys.argv[2:])
    from vllm_ansible.cli import main as everything_else

    return everything_else()


if __name__ == "__main__":
    sys.exit(main())
