"""A machine that ends itself: EC2 is emulated, the machine is a host of a lab with its own systemd.

No engine runs: what is looked at is the timer, from the launch to the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from vllm_ansible.lab.commands import podman
from vllm_ansible.node.system import machine_end
from vllm_ansible.provision.own_end import LATE_SECONDS

from .clone import Ran, wait_until
from .rented_aws import RentedAws, rented_aws

pytestmark = [pytest.mark.lab, pytest.mark.soak]
HOST, HOUR = "lab1", 3600
TIMER = f"{machine_end.name('r1')}.timer"


@pytest.fixture(scope="module")
def aws(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RentedAws]:
    with rented_aws(tmp_path_factory.mktemp("end"), 1) as made:
        made.variables["node_count"] = 1
        made.variables["engines"][0]["nodes"] = 1
        yield made


def provision(aws: RentedAws, hours: float) -> Ran:
    """Rent, or look again, with a limit."""
    aws.variables["max_hours"] = hours
    ran = aws.run("--tags", "provision")
    assert ran.status == 0, ran.output
    return ran


def shown(aws: RentedAws, hours: float) -> None:
    """See that systemd on the machine waits for the end that a limit means, as it reads it."""
    (one,) = aws.cloud.account.machines.values()
    since = next(int(tag["Value"]) for tag in one["Tags"] if tag["Key"].endswith(":since"))
    ends = time.gmtime(since + hours * HOUR + LATE_SECONDS)
    show = ["systemctl", "show", "--property=ActiveState,NextElapseUSecRealtime", TIMER]
    said = aws.lab.run(HOST, ["env", "TZ=UTC", *show]).stdout
    assert "ActiveState=active" in said
    assert time.strftime("%Y-%m-%d %H:%M:%S UTC", ends) in said


def test_the_timer_follows_the_limit_and_ends_the_machine_without_a_controller(
    aws: RentedAws,
) -> None:
    first = provision(aws, 9)
    told = " ".join(first.output.split())
    assert "if no controller ends them, they end themselves 5 minutes after the limits" in told
    shown(aws, 9)
    assert provision(aws, 9).changed == []
    raised = [one for one in provision(aws, 12).changed if "end itself" in one]
    assert len(raised) == 1
    shown(aws, 12)
    provision(aws, 0)
    left = aws.lab.run(HOST, ["sh", "-c", f"ls {machine_end.UNITS}; systemctl list-timers --all"])
    assert machine_end.name("r1") not in left.stdout
    # What a launch gives a machine, here with an end that comes soon; and nobody does anything.
    (identity,) = aws.cloud.account.paid_for
    given = aws.cloud.account.user_data[identity]
    assert machine_end.timer("r1", 0).partition("OnCalendar")[0] in given
    script = machine_end.user_data("r1", time.time() + 10)
    aws.lab.run(HOST, ["sh", "-c", script])
    (host,) = aws.lab.record.hosts

    def is_off() -> bool:
        return podman("inspect", "--format", "{{.State.Running}}", host.container) == "false"

    wait_until(is_off, 300, "a machine that is powered off")
    aws.cloud.account.shut_down(identity)
    assert aws.cloud.account.paid_for == []
