"""What Slurm says, and what it most likely means: refusals, reasons to wait, ends of jobs."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from vllm_ansible.problem import Problem
from vllm_ansible.slurm.job import Job
from vllm_ansible.slurm.settings import Settings


@dataclass(frozen=True, slots=True)
class Meaning:
    """The likely cause of a refusal, and what to do."""

    cause: str
    fix: str


# By words of sbatch's refusal, in small letters; the first that fits counts.
REFUSALS: tuple[tuple[str, Meaning], ...] = (
    (
        "invalid partition",
        Meaning(
            "there is no such partition, or it is not for you", "`sinfo --summarize` lists them"
        ),
    ),
    (
        "invalid account",
        Meaning(
            "the account is not yours, or not for this partition",
            "`sacctmgr show associations user=$USER` lists yours; correct slurm_account",
        ),
    ),
    (
        "invalid generic resource",
        Meaning(
            "this site knows no such GPUs, or not in this form",
            "`sinfo --Format=partition,gres` shows the site's form; use slurm_gres instead of "
            "slurm_gpus_per_node or the other way round",
        ),
    ),
    (
        "requested time limit is invalid",
        Meaning(
            "slurm_time is more than the partition allows, or the site demands one",
            "`sinfo --Format=partition,time` shows the limits; lower slurm_time",
        ),
    ),
    (
        "invalid feature",
        Meaning(
            "no node has what slurm_constraint asks for",
            "`sinfo --Format=partition,features` lists what nodes have",
        ),
    ),
    (
        "invalid qos",
        Meaning("the quality of service is not yours", "correct --qos in slurm_extra_args"),
    ),
    (
        "reservation",
        Meaning(
            "the reservation does not exist, is over, or is not for you",
            "`scontrol show reservation` lists them; correct slurm_reservation",
        ),
    ),
    (
        "memory specification",
        Meaning("no node has so much memory", "lower --mem in slurm_extra_args"),
    ),
    (
        "node count specification",
        Meaning(
            "the partition does not have, or does not give, so many nodes",
            "`scontrol show partition` shows TotalNodes and MaxNodes; lower slurm_nodes",
        ),
    ),
    (
        "more processors requested",
        Meaning(
            "the partition has fewer nodes, or its nodes fewer processors",
            "`sinfo --Format=partition,nodes,cpus` shows both; lower slurm_nodes",
        ),
    ),
    (
        "node configuration is not available",
        Meaning(
            "no nodes of this partition have all that is asked for together",
            "`sinfo --Format=partition,nodes,cpus,memory,gres,features` shows what they "
            "have; GPUs of another type, or more than a node has, are refused like this",
        ),
    ),
    (
        "invalid node name",
        Meaning("a node named in slurm_extra_args does not exist", "`sinfo --Node` lists them"),
    ),
    (
        "job violates accounting/qos policy",
        Meaning(
            "it asks for more than your account may have at once",
            "`sacctmgr show qos` and `sshare` show the limits",
        ),
    ),
    (
        "unrecognized option",
        Meaning("this sbatch does not know an argument", "correct slurm_extra_args"),
    ),
    (
        "invalid --time",
        Meaning("slurm_time is not in a form that sbatch takes", 'write it like "3-00:00:00"'),
    ),
    (
        "unable to contact slurm controller",
        Meaning("slurmctld does not answer", "`scontrol ping` asks it; try again later"),
    ),
)
# Answers that say nothing about whether the job was taken.
LOST = ("socket timed out", "unable to contact slurm controller", "zero bytes were transmitted")
# What scancel says of a job that is on its way out or forgotten already.
OVER = ("already completing or completed", "invalid job id")
# Reasons of a job that waits and will never start, as long as nobody changes anything.
HOPELESS: dict[str, Meaning] = {
    "PartitionNodeLimit": Meaning(
        "the partition allows fewer nodes for a job", "lower slurm_nodes"
    ),
    "PartitionTimeLimit": Meaning("the partition allows less time for a job", "lower slurm_time"),
    "BadConstraints": Meaning("no nodes can meet what is asked for", "correct slurm_constraint"),
    "InvalidAccount": Meaning("the account is not valid", "correct slurm_account"),
    "InvalidQOS": Meaning("the quality of service is not valid", "correct --qos"),
    "DependencyNeverSatisfied": Meaning("what it depends on has failed", "correct --dependency"),
    "ReservationDeleted": Meaning("the reservation is gone", "correct slurm_reservation"),
    "JobHeldUser": Meaning("it is held", "`scontrol release` releases it"),
    "JobHeldAdmin": Meaning("the site's administrators hold it", "ask them"),
    "AccountNotAllowed": Meaning("the account may not use it", "correct slurm_account"),
    "QOSNotAllowed": Meaning("the quality of service may not be used here", "correct --qos"),
    "launch failed requeued held": Meaning(
        "a node could not start it", "ask the site, or exclude it"
    ),
    "job requeued in held state": Meaning("it was held as it was put back", "`scontrol release`"),
    "JobHoldMaxRequeue": Meaning(
        "it failed to start as often as the site allows", "ask the site, or exclude its nodes"
    ),
}
# States that say the same, whose reason may then be a sentence of any form.
HOPELESS_STATES = {
    "RESV_DEL_HOLD": HOPELESS["ReservationDeleted"],
    "SPECIAL_EXIT": HOPELESS["JobHeldAdmin"],
}


# Limits of one job, such as QOSMaxWallDurationPerJobLimit: unlike those of all jobs together, they
# do not pass when another job ends.
PER_JOB = re.compile(r"(Assoc|QOS)Max\w*PerJob")
TOO_MUCH = Meaning(
    "your account or its quality of service gives no single job so much",
    "`sacctmgr show qos` and `sacctmgr show associations user=$USER` show the limits; ask for less",
)


def is_lost(words: str) -> bool:
    """Tell whether sbatch ended without knowing whether the job was taken."""
    return any(one in words.lower() for one in LOST)


def is_over(words: str) -> bool:
    """Tell whether scancel failed only because there was nothing to cancel any more."""
    return not words.strip() or any(one in words.lower() for one in OVER)


def refused(words: str, command: str, wanted: Settings) -> Problem:
    """Return a refusal of sbatch in Slurm's own words, with its likely cause."""
    lines = (line.removeprefix("sbatch: error: ").strip() for line in words.splitlines())
    said = "; ".join(filter(None, lines))
    meaning = next((one for part, one in REFUSALS if part in words.lower()), None)
    found = said or "sbatch failed and said nothing"
    return Problem(
        f"Slurm refuses the job: {found}",
        expected=_asked(wanted),
        found=f"{found}; most likely {meaning.cause}" if meaning else found,
        where=command,
        fix=meaning.fix if meaning else "correct what the inventory asks for; see docs/slurm.md",
    )


def hopeless(job: Job, wanted: Settings) -> Problem | None:
    """Return why a job that waits will never start; None while it may."""
    # Newer versions write underscores where older ones write blanks.
    reason = job.reason.replace("_", " ")
    meaning = HOPELESS.get(reason) or HOPELESS_STATES.get(job.state)
    if meaning is None and PER_JOB.match(job.reason):
        meaning = TOO_MUCH
    if meaning is None:
        return None
    return Problem(
        f"Slurm keeps job {job.id} waiting for ever: {job.reason}",
        expected=_asked(wanted),
        found=f"{job.reason}: {meaning.cause}",
        where=f"job {job.id}",
        fix=f"{meaning.fix}; teardown.yml cancels the job",
    )


def queue_line(job: Job, position: int | None, now: float) -> str:
    """Return one line about a job that waits."""
    words = [f"job {job.id} waits: {job.reason or job.state}"]
    if position is not None:
        words.append(f"number {position} in {job.partition}")
    if job.starts_at:
        wait = max(job.starts_at - now, 0)
        words.append(f"expected to start in {span(wait)}, {clock(job.starts_at)}")
    return ", ".join(words)


def time_left(job: Job, now: float) -> str:
    """Return until when a job may run, in words; empty without a limit."""
    if not job.ends_at:
        return ""
    return f"until {clock(job.ends_at)}, {span(max(job.ends_at - now, 0))} from now"


def clock(at: float) -> str:
    """Return a time as a person of this machine writes it."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def span(seconds: float) -> str:
    """Return a duration in the two units that matter."""
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _asked(wanted: Settings) -> str:
    count, model = wanted.gpus
    gpus = f" with {count} {model} GPUs each".replace("  ", " ") if count else ""
    words = [f"{wanted.nodes} nodes{gpus}"]
    words += [f"of partition {wanted.partition}"] if wanted.partition else []
    words += [f"for {wanted.time}"] if wanted.time else []
    return " ".join(words)
