"""See that every slot of a cluster has a rented machine; see library/rented_machines.py."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

# Action plugins run inside ansible-playbook, where the module_utils setting does not reach.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from vllm_ansible.inventory.play_variables import plain
from vllm_ansible.inventory.state_owner import claim_for_run
from vllm_ansible.problem import PlanError, as_result
from vllm_ansible.provision import own_end, parts
from vllm_ansible.provision.cluster import Cluster
from vllm_ansible.provision.convergence import Fleet, Outcome, converge
from vllm_ansible.provision.ending import end_all, end_every
from vllm_ansible.provision.fleet import ENDED, GONE, Seen, Wish, cents_per_hour, next_step
from vllm_ansible.provision.host_keys import HostKeys
from vllm_ansible.provision.limits import seconds_left, spent
from vllm_ansible.provision.provider import Settings, provider
from vllm_ansible.provision.watcher import NoWatcher, after_reboot, watch
from vllm_ansible.provision.watcher import end as end_watch
from vllm_ansible.provision.words import (
    all_unfit,
    announced,
    ended,
    nobody_watches,
    not_ours_to_end,
    others_left,
    told,
    unwritten,
    would_end,
)
from vllm_ansible.record import plays
from vllm_ansible.record.progress import Progress

ENDING_SECONDS = 600.0
# A run that rents and ends by itself, or by a signal, is over by then.
HELD_SECONDS = 120.0
# Machines that show no SSH key are replaced so often.
TRIES = 3
STATE = Path(__file__).resolve().parents[1] / "state"
ARGUMENTS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "part": {"type": "str", "default": ""},
    "holds": {"type": "str", "default": ""},
    "rejected": {"type": "dict", "default": {}},
    "idle": {"type": "dict", "default": {}},
    "silence_seconds": {"type": "float", "default": 3600},
    "boot_seconds": {"type": "float", "default": 1800},
    "ssh_seconds": {"type": "float", "default": 600},
}


class ActionModule(ActionBase):
    """Ask, launch, wait and replace from the controller; no host is touched."""

    TRANSFERS_FILES = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the machines of the slots, what they cost, and what was done."""
        variables = task_vars or {}
        # Before any wait: a run may end while another one holds the machines.
        self._started_by = os.getppid()
        result = dict(super().run(tmp, variables))
        _, asked = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self._cloud = provider(str(self._templar.template(variables["provision_provider"])))
        try:
            wanted = self._cloud.settings(self._own(variables), "the inventory")
            cluster = self._cloud.cluster(wanted, STATE)
            part = asked["part"]
            if asked["state"] == "absent":
                end = self._end_part(cluster, wanted, asked) if part else self._end(cluster)
                return {**result, **end}
            if self._task.check_mode:
                fleet = cluster.part(part) if part else cluster.fleet()
                if part and (why := cluster.needless(part, asked["holds"])):
                    return {**result, **parts.needless(part, why)}
                wish = self._wish(cluster, fleet, wanted, asked)
                told_of = self._announce(cluster, fleet, wish, asked)
                return {**result, **parts.of_part(self._cloud, part, told_of)}
            with cluster.alone(self._line.show):
                # Only now: whoever held the machines may have filled the volume, or rented some.
                if part and (why := cluster.needless(part, asked["holds"])):
                    return {**result, **parts.needless(part, why)}
                claim_for_run(STATE / wanted.cluster, variables)
                self._begin(cluster, variables, wanted, part)
                # What it launches is tagged with the id of this state/, which is there only now.
                fleet = cluster.part(part) if part else cluster.fleet()
                wish = self._wish(cluster, fleet, wanted, asked)
                done = self._provide(cluster, fleet, wanted, wish, asked)
                # Again, for it may have found nothing to watch before.
                watch(cluster.meter, self._own(variables), wanted)
            now = time.time()
            left = seconds_left(cluster.ledger, wanted, now)
            watched = "" if left is None else after_reboot(cluster.meter)
            ends = self._own_ends(cluster, done, own_end.at(cluster.ledger, wanted, now))
            words = told(
                *(self._cloud, done, wish, left, now, watched, asked["idle"]),
                ends_itself=any(ends.values())
                and self._own(variables).get("privileges") != own_end.NO_ROOT,
            )
            return {**result, **parts.of_part(self._cloud, part, words), "own_ends": ends}
        except PlanError as refused:
            return {**result, "failed": True, **as_result(refused.problems)}
        except self._cloud.errors as error:
            return {**result, "failed": True, **self._cloud.refusal(error)}
        except NoWatcher as error:
            return {**result, "failed": True, **nobody_watches(error)}
        except OSError as error:
            return {**result, "failed": True, **unwritten(error)}

    @cached_property
    def _line(self) -> Progress:
        return Progress(Display(), plays.stage(self._task.play), self._task.get_name())

    def _begin(
        self, cluster: Cluster, variables: Mapping[str, Any], wanted: Settings, part: str
    ) -> None:
        """Have the limits watched before there is anything to pay for."""
        machines = cluster.machines()
        cluster.claim(machines)
        cluster.keep_state()
        if not machines and all(one.pending is None for one in cluster.fleets()):
            # Whoever ended the last ones: what they have cost is no part of this.
            if part:
                cluster.ledger.close()
            else:
                cluster.ledger.begin()
        watch(cluster.meter, self._own(variables), wanted)

    def _wish(
        self, cluster: Cluster, fleet: Fleet, wanted: Settings, asked: Mapping[str, Any]
    ) -> Wish:
        """Return what is asked for; machines beside it count against what an hour may cost."""
        limit = wanted.max_cents_per_hour
        if limit is not None and len(cluster.fleets()) > 1:
            own = {one.id for one in fleet.machines()}
            limit -= cents_per_hour([one for one in cluster.machines() if one.id not in own])
        boot, together = asked["boot_seconds"], self._cloud.together
        if part := asked["part"]:
            return Wish(1, 0, limit, boot, together, parts.PURPOSES[part])
        return Wish(wanted.count, wanted.spares, limit, boot, together)

    def _provide(
        self,
        cluster: Cluster,
        fleet: Fleet,
        wanted: Settings,
        wish: Wish,
        asked: Mapping[str, Any],
    ) -> Outcome:
        """Bring every slot to a machine that shows its SSH key."""
        line = self._line
        rejected = dict(asked["rejected"])
        keys = HostKeys(cluster.known_hosts)
        living = [one for one in fleet.machines() if one.status not in GONE]
        for region in {one.region for one in living}:
            # Also where nothing is launched: who may reach them may have changed.
            cluster.surroundings.ready(region)

        def stopped() -> str:
            # A worker of Ansible outlives its terminal, and nobody would see what it rents.
            gone = os.getppid() != self._started_by
            return "the run is gone" if gone else spent(cluster.ledger, wanted, time.time())

        done = Outcome(surroundings=cluster.surroundings.changed)
        done.stopped = all_unfit(self._cloud, living, rejected)
        if done.stopped:
            done.machines = living
            return done
        for _ in range(TRIES):
            done.add(
                converge(
                    fleet,
                    wish,
                    rejected,
                    asked["silence_seconds"],
                    line.show,
                    spent=stopped,
                    unjudged=cluster.unjudged,
                    equip=cluster.equip,
                )
            )
            present = [one for one in cluster.machines() if one.status not in GONE]
            others = {one.shown_by: one.door for one in present}
            if done.spared:
                done.stopped = not_ours_to_end(self._cloud, done.spared)
            if done.stopped:
                return done
            line.show(f"{len(done.machines)} machines are up; waiting for their SSH keys")
            doors = {one.shown_by: one.door for one in done.machines}
            shy = keys.learn(doors, asked["ssh_seconds"], lambda: bool(stopped()), others)
            silent = [one.id for one in done.machines if one.shown_by in shy]
            if not silent:
                return done
            why = f"showed no SSH key within {asked['ssh_seconds']:.0f} s"
            quiet = [one for one in done.machines if one.id in silent]
            if serving := [one for one in quiet if not cluster.unjudged(one)]:
                done.stopped = not_ours_to_end(self._cloud, serving, why)
                return done
            rejected = dict.fromkeys(silent, why)
            done.stopped = stopped() or all_unfit(self._cloud, done.machines, rejected)
            if done.stopped:
                return done
        done.stopped = f"{len(silent)} machines {why}, and so did those that they replace"
        return done

    def _own_ends(self, cluster: Cluster, done: Outcome, end: int | None) -> dict[str, int | None]:
        """Return when each machine that is ours ends itself; none where no machine does."""
        if not self._cloud.ends_itself:
            return {}
        return {one.id: end for one in done.machines if cluster.mine(one)}

    def _end(self, cluster: Cluster) -> dict[str, Any]:
        """End every machine that was rented from here, and say what they have cost.

        Machines of somebody else under this cluster's name keep nobody from ending their own.
        """
        if self._task.check_mode:
            return would_end([one for one in cluster.machines() if cluster.mine(one)])
        with cluster.alone(self._line.show, HELD_SECONDS):
            done = end_every(cluster.fleets(), ENDING_SECONDS, self._line.show, mine=cluster.mine)
            listed = [one for one in cluster.machines() if one.status != ENDED]
            left = [one for one in listed if cluster.mine(one)]
            cents = cluster.ledger.cents(time.time())
            if not left:
                cluster.ledger.close()
                with suppress(OSError):
                    # Without room for it, whoever watches ends with the last machine.
                    end_watch(cluster.meter)
                cluster.accepted.forget()
            around = cluster.surroundings
            if not listed:
                around.remove()
        result = ended(self._cloud, done, cents, left, self._cloud.kept(around))
        try:
            cluster.claim(listed)
        except PlanError as refused:
            return others_left(result, as_result(refused.problems))
        return result

    def _end_part(
        self, cluster: Cluster, wanted: Settings, asked: Mapping[str, Any]
    ) -> dict[str, Any]:
        """End the machine of a part whose work is done, and say what it has cost."""
        part = asked["part"]
        fleet = cluster.part(part)
        if self._task.check_mode:
            return would_end([one for one in fleet.machines() if cluster.mine(one)])
        with cluster.alone(self._line.show, HELD_SECONDS):
            finished = ""
            # Before its end, which a run may not live to see; what keeps it from that is no reason
            # to pay for the machine any longer.
            with suppress(OSError, PlanError, *self._cloud.errors):
                finished = cluster.finished(part, asked["holds"])
            done = end_all(fleet, ENDING_SECONDS, self._line.show, mine=cluster.mine)
            entries, now = cluster.ledger.entries(), time.time()
            cost = [entries[one.id] for one in done.ended if one.id in entries]
            noted = any(one.pending for one in cluster.fleets())
            if not noted and all(one.status in GONE for one in cluster.machines()):
                with suppress(OSError):
                    end_watch(cluster.meter)
        return parts.ended(self._cloud, part, wanted, done, cost, finished, now)

    def _announce(
        self, cluster: Cluster, fleet: Fleet, wish: Wish, asked: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Say what would be rented or replaced; nothing is asked for but lists."""
        rejected = dict(asked["rejected"])
        machines = fleet.machines()
        seen = Seen(frozenset(one.id for one in machines if cluster.unjudged(one)))
        offers, pending = fleet.offers(), fleet.pending
        step = next_step(wish, machines, offers, pending, rejected, time.time(), seen)
        return announced(self._cloud, machines, step, wish, rejected, asked["idle"])

    def _own(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the variables that say what is rented, evaluated."""
        return {
            name: plain(self._templar.template(variables[name]))
            for name in self._cloud.read
            if name in variables
        }
