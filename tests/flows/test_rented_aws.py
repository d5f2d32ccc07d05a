"""AWS from an empty account to tokens and back: EC2 emulated, its machines real over SSH."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.emulators.ec2_parts import KEY_ID, SECRET

from .clone import MINUTE, Ran, wait_until
from .drained import DRAIN
from .hub_model import MODEL, hub_on
from .rented_aws import FULL, KIND, ZONE, RentedAws, rented_aws

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.soak]
RENT = ("--tags", "provision")


@pytest.fixture(scope="module")
def site(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RentedAws]:
    with rented_aws(tmp_path_factory.mktemp("rented-aws"), hosts=3) as made:
        yield made


def test_a_check_only_lists_and_a_full_quota_rents_nothing(site: RentedAws) -> None:
    account = site.cloud.account
    ran = site.run("--check", *RENT)
    assert ran.status == 0, ran.output
    assert f"2 of 2 would be rented: {KIND} in {FULL}, $100.00/h" in ran.output
    assert site.cloud.writes == []
    account.faults.spot_vcpus = 192
    failure = site.run(*RENT).failure
    assert "Max spot instance count exceeded" in failure["msg"]
    assert "MaxSpotInstanceCountExceeded in answer to RunInstances" in failure["found"]
    assert "quota" in failure["fix"] and account.machines == {}
    account.faults.spot_vcpus = 10_000


def test_a_controller_killed_while_it_launches_launches_nothing_twice(site: RentedAws) -> None:
    """On a bad day: no room in the first zone, requests that come too often, and lost answers."""
    cloud, faults = site.cloud, site.cloud.account.faults
    cloud.log.clear()
    faults.throttled["RunInstances"] = faults.throttled["DescribeInstances"] = 1
    # Carried out, and answered to nobody for as long as the first run lives.
    faults.lost["RunInstances"] = 100
    running = site.start(*RENT)

    def launched() -> bool:
        assert running.process.poll() is None, running.console.read_text()
        return ("RunInstances", "OK") in cloud.log

    wait_until(launched, 5 * MINUTE, "a launch")
    running.kill()
    faults.lost.clear()
    ran = site.run(*RENT)
    assert ran.status == 0, ran.output
    said = {code for name, code in cloud.log if name == "RunInstances"}
    assert said == {"RequestLimitExceeded", "InsufficientInstanceCapacity", "OK"}
    assert len(cloud.account.machines) == 2 and len(cloud.account.paid_for) == 2
    launches = [asked for name, asked in cloud.requests if name == "RunInstances"]
    made = {one["ClientToken"] for one in cloud.account.machines.values()}
    assert len(made) == 1 and {one["MinCount"] for one in launches} == {2}
    (fabric,) = {
        sum(each.get("InterfaceType") == "efa-only" for each in one["NetworkInterfaces"])
        for one in launches
    }
    assert fabric == 32
    told = "; ".join(one["summary"] for one in ran.evidence("provision"))
    assert f"2 x {KIND} in {ZONE}, $100.00/h" in told


def test_all_of_it_serves_a_true_answer_and_shows_no_credential(site: RentedAws) -> None:
    for host in site.machines.rented.values():
        site.serve_metadata(host)
    ran = site.start("-vvv").result(25 * MINUTE)
    assert ran.status == 0, ran.output[-20_000:]
    (served,) = ran.evidence("serve")
    (engine,) = served["values"]["engines"]
    assert engine["answer"].startswith("The capital of France is Paris")
    (planned,) = ran.evidence("plan")
    assert "TP1 PP2 on r1-0, r1-1" in planned["summary"]
    assert "EXEC" in ran.output
    assert SECRET not in ran.output and KEY_ID not in ran.output
    written = [path for path in site.clone.directory.rglob("*") if path.is_file()]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    for _, asked in site.cloud.requests:
        assert "UserData" not in asked and SECRET not in str(asked)
    words = f"-e {SECRET} -e {KEY_ID}"
    look = (
        f"! grep -rqsF {words} --exclude-dir=proc --exclude-dir=sys / &&"
        f" ! grep -qsF {words} /proc/[0-9]*/environ"
    )
    for host in site.machines.rented.values():
        site.lab.run(host, ["sh", "-c", look])


def test_a_second_run_and_a_check_change_nothing_and_only_list(site: RentedAws) -> None:
    site.cloud.log.clear()
    ran = site.run()
    assert ran.status == 0, ran.output
    assert ran.changed == []
    checked = site.run("--check")
    assert checked.status == 0, checked.output
    assert site.cloud.log and site.cloud.writes == []


def bring(site: RentedAws, url: str) -> Ran:
    """Bring a model of the hub to both machines, beside what is served."""
    given = {
        "weights_engines": [{"name": "tiny", "model": MODEL}],
        "sources_environment": {**site.variables["sources_environment"], "HF_ENDPOINT": url},
    }
    ran = site.run("-e", json.dumps(given), playbook="playbooks/weights.yml")
    assert ran.status == 0, ran.output
    (brought,) = ran.evidence("weights")
    assert brought["summary"] == f"tiny: {MODEL}, 24 MiB on 2 host(s)"
    return ran


def test_a_model_of_the_hub_reaches_both_machines(site: RentedAws) -> None:
    (head, _) = site.machines.rented.values()
    with hub_on(site.lab, head) as url:
        ran = bring(site, url)
    assert {f"Start to fetch (r1-{slot})" for slot in (0, 1)} <= set(ran.changed)


def test_an_interruption_drains_the_engine_is_named_as_the_cause_and_replaced(
    site: RentedAws,
) -> None:
    """Of the machine that has only ranks: its notice has to reach the host of the server."""
    listed = site.cloud.account.machines
    (taken,) = [name for name, one in listed.items() if one["AmiLaunchIndex"] == 1]
    (kept,) = set(listed) - {taken}
    head, worker = site.machines.rented[kept], site.machines.rented[taken]
    chat = site.plan["chat"]
    url = f"http://{site.lab.address(head, site.network)}:{chat['ports']['api']}"
    key, unit = "/opt/vllm-ansible/r1/secrets/api_key", "vllm-r1-chat-serve"
    begun = "/run/stream-has-begun"
    given = (url, key, chat["served_name"], unit, begun)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(site.python, head, DRAIN, *given)
        wait_until(
            lambda: (
                stream.done()
                or site.lab.run(head, ["test", "-e", begun], check=False).returncode == 0
            ),
            2 * MINUTE,
            "a stream",
        )
        site.interrupt(taken)
        found = stream.result(5 * MINUTE)
    wanted = found.pop("wanted")
    assert found == {"tokens": wanted, "whole": True, "refused": 503, "ended": True}
    # As a minute later: what was listed is kept for so long.
    (site.clone.directory / "state/r1/aws-instances.json").unlink()
    ran = site.run(playbook="playbooks/status.yml")
    assert ran.failure["stage"] == "status"
    found = {one["host"]: one for one in ran.of("failure")}
    assert f"AWS takes r1-1 ({taken}) back within two minutes" in " ".join(ran.output.split())
    for host in ("r1-0", "r1-1"):
        assert "engine chat on machines that stay" in found[host]["msg"]
        assert "chat: spot interruption, r1-1 ends at" in found[host]["found"]
    assert "chat-serve finished its requests in" in found["r1-0"]["found"]
    # What stands for it runs on, where a machine would be gone.
    site.lab.run(worker, ["systemctl", "stop", "vllm-r1-*"])
    site.end(taken)
    (site.machines.first,) = [
        [one.name] for one in site.lab.record.hosts if one.name not in (head, worker)
    ]
    ran = site.run(*RENT)
    assert ran.status == 0, ran.output
    told = "; ".join(one["summary"] for one in ran.evidence("provision"))
    assert "the machine that slot 1 had was interrupted by AWS, as spot machines are" in told
    assert len(site.cloud.account.paid_for) == 2 and taken not in site.cloud.account.paid_for


def test_the_new_machine_gets_its_weights_from_the_other_one_and_serves(site: RentedAws) -> None:
    head, new = site.machines.rented.values()
    site.serve_metadata(new)
    # The hub would take hours for what the other machine has.
    with hub_on(site.lab, head, "--rate", "1000") as url:
        ran = site.start("--tags", "provision,prepare,install").result(20 * MINUTE)
        assert ran.status == 0, ran.output
        fetched = [one for one in bring(site, url).changed if one.startswith("Start to fetch")]
    assert fetched == ["Start to fetch (r1-1)"]
    ran = site.start().result(20 * MINUTE)
    assert ran.status == 0, ran.output
    (served,) = ran.evidence("serve")
    (engine,) = served["values"]["engines"]
    assert engine["answer"].startswith("The capital of France is Paris")


def test_teardown_leaves_nothing_to_pay_for(site: RentedAws) -> None:
    account = site.cloud.account
    # Fewer than two where a test before this one failed.
    left = len(account.paid_for)
    ran = site.run(playbook="playbooks/teardown.yml")
    assert ran.status == 0, ran.output
    (told,) = ran.evidence("machines ended")
    assert len(told["values"]["ended"]) == left
    assert "none is listed any more; the cluster has cost about $" in told["summary"]
    account.describe_volumes({})
    assert account.paid_for == [] and account.volumes == {}
    network = account.network
    assert network.groups == network.placements == network.keys == network.addresses == {}
    orphans = site.run(playbook="playbooks/orphans.yml")
    assert orphans.status == 0, orphans.output
    again = site.run(playbook="playbooks/teardown.yml")
    assert again.status == 0 and again.changed == [], again.output
