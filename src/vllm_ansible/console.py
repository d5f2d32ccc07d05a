"""The entry of the command `vllm-ansible`: planning starts in milliseconds, all else in its own."""

from __future__ import annotations

import gc
import sys

from vllm_ansible.cli.output import outlive_readers


def main() -> int:
    """Do what the command line says, also when nobody reads on."""
    if sys.argv[1:2] == ["ask"] and not {"-h", "--help"} & set(sys.argv):
        # An answer that nobody reads is not waited for.
        return _main()
    outlive_readers()
    try:
        return _main()
    finally:
        sys.stdout.flush()


def _main() -> int:
    """Do what the command line says; only the verb that runs is imported."""
    if sys.argv[1:2] == ["plan"]:
        # A plan makes thousands of small objects and ends: looking for cycles is a fifth of it.
        gc.disable()
        from vllm_ansible.plan.estimate.layouts.command import main as plan

        return plan(sys.argv[2:])
    if sys.argv[1:2] == ["send"]:
        from vllm_ansible.batch.command import main as send

        return send(sys.argv[2:])
    from vllm_ansible.cli.main import main as everything_else

    return everything_else()


if __name__ == "__main__":
    sys.exit(main())
