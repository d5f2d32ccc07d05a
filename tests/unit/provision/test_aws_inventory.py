"""`ansible-inventory` with the plugin of AWS, against the emulated EC2."""

from __future__ import annotations

import json
from typing import Any

from tests.emulators.ec2_parts import SECRET
from vllm_ansible.provision.cluster import owner

from .aws_rental import AwsSite
from .aws_world import P5, A, AwsWorld


def hosts(site: AwsSite, said: str = "") -> dict[str, Any]:
    done = site.run("ansible-inventory", "--list")
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert said in " ".join(done.stderr.split())
    # What comes from outside is marked, so that it is never evaluated as a template.
    found: dict[str, Any] = json.loads(
        done.stdout, object_hook=lambda one: one.get("__ansible_unsafe", one)
    )
    variables: dict[str, Any] = found["_meta"]["hostvars"]
    return variables


def test_every_slot_is_a_host_before_and_after_it_has_a_machine(
    aws_site: AwsSite, aws: AwsWorld
) -> None:
    more = {"spare_count": 1, "aws_public_address": True, "aws_market": "spot"}
    aws_site.variables |= more
    found = hosts(aws_site)
    assert sorted(found) == ["r1-0", "r1-1", "r1-2"]
    first = found["r1-0"]
    assert first["ansible_host"] == "no-machine-yet.invalid" and first["ansible_user"] == "ubuntu"
    assert (first["accelerator_count"], first["accelerator_model"]) == (8, "H100")
    assert aws.cloud.writes == []
    aws.settings |= {"public_address": True, "market": "spot", "owner": owner()}
    second = aws.converge().machines[1].id
    aws.cloud.account.interrupt(second)
    # What was listed is kept for a minute.
    (aws_site.directory / "state/r1/aws-instances.json").unlink()
    taken = f"AWS takes r1-1 ({second}) back within two minutes; its engines are drained"
    found = hosts(aws_site, taken)
    assert [found[name]["ansible_host"] for name in sorted(found)] == [
        "203.0.113.1",
        "203.0.113.2",
        "no-machine-yet.invalid",
    ]
    machine = found["r1-1"]["provision_machine"]
    assert (machine["type"], machine["region"], machine["status"]) == (P5, A, "preempted")
    # EC2 lists no price: it is the one that aws_usd_per_hour gives, or none.
    prices = aws_site.variables.get("aws_usd_per_hour", {})
    assert machine.get("usd_per_hour") == prices.get(P5)


def test_what_is_wrong_is_said_and_nothing_else(aws_site: AwsSite) -> None:
    aws_site.variables |= {"aws_zones": ["us-east-1a"], "max_cost": 5, "aws_usd_per_hour": {}}
    done = aws_site.run("ansible-inventory", "--list")
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "aws_zones is 'us-east-1a'" in said and "a zone of us-east-2" in said
    assert f"max_cost is set, and the price of {P5} is not known" in said
    # Not a line of any other plugin, nor of Ansible's own.
    assert all(line.startswith((" inventory  ", "   ")) for line in done.stderr.splitlines())
