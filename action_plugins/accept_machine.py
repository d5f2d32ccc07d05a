"""Say whether a rented machine is fit to serve; see library/accept_machine.py."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from vllm_ansible.accelerators.platform import has_devices
from vllm_ansible.provision.accepted import refuses_login
from vllm_ansible.provision.cluster import accepted
from vllm_ansible.verify.devices import judge, summary
from vllm_ansible.verify.row import FAIL

ARGUMENTS = {
    "accelerators": {"type": "dict", "default": {}},
    "seconds": {"type": "float", "default": 5},
    "bytes": {"type": "int", "default": 1 << 30},
    "patience_seconds": {"type": "float", "default": 600},
    "cluster_dirs": {"type": "list", "elements": "str", "default": []},
}
# With the id, on the machine itself, in the home of who logs in there.
MARK = "~/.vllm-ansible-fit-"
LOOK_SECONDS = 5.0
STATE = Path(__file__).resolve().parents[1] / "state"
# A machine that has just come up may not have its keys yet; one that refuses them stays so.
LOGIN_SECONDS = 90.0


class ActionModule(ActionBase):
    """Wait for an answer, then probe the accelerators; a refusal is no failure here."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `accepted`, and `reason` where it is not."""
        variables = task_vars or {}
        result = dict(super().run(tmp, variables))
        _, wanted = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if self._task.check_mode:
            return {**result, "skipped": True, "msg": "Check mode: nothing is measured"}
        kept = accepted(STATE, str(variables["cluster_name"]))
        identity = str(variables["provision_machine"]["id"])
        if (known := kept.told(identity)) is not None:
            return {**result, "changed": False, "accepted": True, "reason": "", "told": known}
        # Of a node of an allocation nobody says so: it goes back to others, who want no mark on it.
        here = variables["provision_machine"].get("launched_here")
        if here is False:
            # It may serve: whoever launched it has judged it, or a run that was killed.
            told = "rented before, not by this state/: not measured"
            return {**result, "changed": False, "accepted": True, "reason": "", "told": told}
        try:
            reason = self._silence(wanted["patience_seconds"], variables)
            told = "" if reason else self._in_use(identity, wanted, variables, marked=bool(here))
            if not reason and not told:
                told = "answers"
                if has_devices(variables.get("accelerator")):
                    reason, told = self._probe(wanted, variables)
                if here and not reason:
                    self._mark(identity, variables)
        except AnsibleConnectionFailure as error:
            reason, told = f"lost while it was looked at: {_last_words(str(error))}", ""
        if not reason:
            kept.keep(identity, told)
        return {
            **result,
            "changed": False,
            "accepted": not reason,
            "reason": reason,
            "told": told,
        }

    def _silence(self, patience: float, variables: dict[str, Any]) -> str:
        """Return why it cannot be reached, empty once it answers: sshd lags behind the listing."""
        started = time.monotonic()
        while True:
            try:
                answer = self._execute_module(
                    module_name="ansible.legacy.ping", module_args={}, task_vars=variables
                )
                if answer.get("ping") == "pong":
                    return ""
                words = str(answer.get("msg") or answer.get("module_stderr") or "no answer")
            except AnsibleConnectionFailure as error:
                words = str(error)
                self._connection.reset()
            limit = min(patience, LOGIN_SECONDS) if refuses_login(words) else patience
            if time.monotonic() - started >= limit:
                return f"no answer for {limit:.0f} s: {_last_words(words)}"
            time.sleep(LOOK_SECONDS)

    def _in_use(
        self,
        identity: str,
        wanted: Mapping[str, Any],
        variables: dict[str, Any],
        marked: bool,
    ) -> str:
        """Return what shows that it was found fit before, empty where nothing does.

        What is kept here may be lost while it serves; measured then, a fit one looks slow.
        """
        arguments = {"path": MARK + identity.replace("/", "_")}
        if marked:
            look = self._execute_module(
                module_name="ansible.legacy.stat", module_args=arguments, task_vars=variables
            )
            if (look.get("stat") or {}).get("exists"):
                return "found fit before, by its own mark: not measured"
        for directory in wanted["cluster_dirs"]:
            look = self._execute_module(
                module_name="leftovers_info",
                module_args={"cluster_dir": directory},
                task_vars=variables,
            )
            if found := look.get("processes"):
                return f"runs {len(found)} processes of this cluster: not measured"
        return ""

    def _mark(self, identity: str, variables: dict[str, Any]) -> None:
        """Say on the machine that it was found fit; unmarked it is fit as well."""
        path = MARK + identity.replace("/", "_")
        self._execute_module(
            module_name="ansible.legacy.file",
            module_args={"path": path, "state": "touch", "mode": "0600"},
            task_vars=variables,
        )

    def _probe(self, wanted: Mapping[str, Any], variables: dict[str, Any]) -> tuple[str, str]:
        """Return why its accelerators are not fit, empty if they are, and what they did."""
        arguments = {name: wanted[name] for name in ("seconds", "bytes")}
        answer = self._execute_module(
            module_name="accelerator_probe", module_args=arguments, task_vars=variables
        )
        if answer.get("failed"):
            return str(answer.get("msg") or "the probe failed"), ""
        probes = {str(variables["inventory_hostname"]): answer["probe"]}
        found = len(answer["probe"]["devices"])
        expected = int(variables.get("accelerator_count") or found)
        if found != expected:
            return f"{found} accelerators, {expected} are expected of its type", ""
        for row in judge(probes, wanted["accelerators"]):
            if row.verdict == FAIL:
                return f"{row.what}: {row.found}, expected {row.expected}", ""
        return "", summary(probes)


def _last_words(text: str) -> str:
    return text.strip()[-300:]
