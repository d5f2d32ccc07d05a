"""Decide which hosts need the tar of the engine's image, and from whom they get it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase

from vllm_ansible.inventory.play_variables import hosts_that_answer, of_each_host
from vllm_ansible.node.failure import Failure
from vllm_ansible.node.image import archive, install
from vllm_ansible.problem import PlanError, Problem, as_result
from vllm_ansible.weights.image import Way, expect_room, manifest, way


class ActionModule(ActionBase):
    """Compare what hosts and the controller have; see library/image_spread.py."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the way of the tar, and what the weight store needs to pass it on."""
        result = dict(super().run(tmp, task_vars))
        _, wanted = self.validate_argument_spec(
            argument_spec={
                "file": {"type": "path", "required": True},
                "sha256": {"type": "str", "required": True},
                "slug": {"type": "str", "required": True},
                "looks": {"type": "str", "required": True},
                "rooms": {"type": "str", "required": True},
            }
        )
        variables = task_vars or {}
        here = Path(wanted["file"])
        try:
            hosts = hosts_that_answer(variables)
            looks = of_each_host(variables, hosts, wanted["looks"])
            decided = way(wanted["file"], looks, here.stat().st_size if here.is_file() else 0)
            if decided.upstream:
                rooms = of_each_host(variables, hosts, wanted["rooms"])
                expect_room(decided, looks, rooms, _load_bytes(decided, looks, here))
            # Read once, and only where it is about to be copied: that takes far longer.
            if decided.copied:
                install.expect_checksum(str(here), wanted["sha256"], _silent)
        except PlanError as error:
            return {**result, "failed": True, **as_result(error.problems)}
        except Failure as error:
            told = Problem(str(error), **{**error.details, "where": f"{here} on the controller"})
            return {**result, "failed": True, **as_result([told])}
        except OSError as error:
            return {**result, "failed": True, **as_result([_unread(here, error)])}
        return {
            **result,
            "changed": False,
            **asdict(decided),
            "manifests": manifest(wanted["slug"], decided.size, wanted["sha256"]),
        }


def _load_bytes(decided: Way, looks: dict[str, Any], here: Path) -> int:
    """Return what loading takes, as told by the one who has the tar."""
    return archive.room(str(here)) if decided.copied else int(looks[decided.entry]["room_bytes"])


def _silent(*_: Any) -> None:
    """Report nothing: the checksum is a matter of minutes at most."""


def _unread(here: Path, error: OSError) -> Problem:
    return Problem(
        f"the tar of the engine's image cannot be read on the controller: {here}",
        expected="a file that the user who runs ansible-playbook may read",
        found=str(error),
        where="engine_image_file",
        fix="let this user read it, or put it on a host under the same path",
    )
