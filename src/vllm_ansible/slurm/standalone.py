"""One sbatch file that serves a plan without this project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jinja2

from vllm_ansible.node.environment.image_program import program
from vllm_ansible.plan.environment import KEPT_ON_THEIR_HOST
from vllm_ansible.plan.process_spec import HEAD, SERVE, WORKER
from vllm_ansible.plan.processes import LIMITS
from vllm_ansible.slurm.endpoint import FILE, published
from vllm_ansible.slurm.processes import engine_starts
from vllm_ansible.slurm.script import asked
from vllm_ansible.slurm.shell import comment, lines_of_document, lines_of_words, variable, word
from vllm_ansible.slurm.wanted import Wanted

TEMPLATES = Path(__file__).with_name("sbatch")
# Of packages/vllm_guard, what servers load by name.
GUARD = Path(__file__).resolve().parents[3] / "packages/vllm_guard/src/vllm_guard"
MODULES = ("access", "draining")
# How long before its time is over a job is asked to end: afterwards it cannot start a step.
NOTICE_SECONDS = 120
# By which `ulimit` knows limits.
LETTERS = {"memlock": "l", "nofile": "n"}


def standalone(wanted: Wanted) -> str:
    """Return the script; the same plan gives the same text. Raise PlanError."""
    engines = engine_starts(wanted)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # ${#array[@]} is no comment.
        comment_start_string="{##",
        comment_end_string="##}",
        autoescape=False,  # noqa: S701  a shell script, whose words are quoted by `word`
    )
    environment.filters |= {
        "comment": comment,
        "document": lines_of_document,
        "lines": lines_of_words,
        "word": word,
    }
    text = environment.get_template("job.sh.j2").render(
        wanted=wanted,
        settings=wanted.settings,
        directives=list(directives(wanted)),
        engines=engines,
        HEAD=HEAD,
        WORKER=WORKER,
        SERVE=SERVE,
        limits={
            LETTERS[name]: "unlimited" if value == "infinity" else value
            for name, value in LIMITS.items()
        },
        published=_published(wanted),
        file=FILE,
        stay=json.dumps(sorted(KEPT_ON_THEIR_HOST)),
        guard={
            name: (GUARD / f"{name}.py").read_text(encoding="utf-8").rstrip("\n")
            for name in MODULES
        },
        program=program(
            wanted.image,
            '"$DIRECTORY"/node-0/python',
            '"$DIRECTORY" "$LOCAL"',
            wanted.accelerator,
        ).rstrip("\n"),
        over_ray=any(one.engine.ray_processes() for one in engines),
    )
    return text.rstrip("\n") + "\n"


def directives(wanted: Wanted) -> Iterator[str]:
    """Yield the options of the job: those of the job that would hold the nodes, under its own name.

    The other name keeps this project from taking the job for one that it may fill.
    """
    options = asked(wanted.settings)
    del options["comment"], options["chdir"]
    options["job-name"] = name = f"{wanted.settings.job_name}-script"
    options["output"] = f"{name}-%j.log"
    options["signal"] = f"B:TERM@{NOTICE_SECONDS}"
    yield "--requeue"
    for option, value in options.items():
        if value:
            yield word(f"--{option}={value}")
    # Last, so that they have the last word.
    if wanted.settings.extra_args:
        yield " ".join(word(argument) for argument in wanted.settings.extra_args)


def _published(wanted: Wanted) -> str:
    """Return what users read, in the form of the file that the product itself publishes."""
    # A URL is taken apart on the way, so what stands for an address has to look like one.
    names = {host: f"slot{slot}.invalid" for slot, host in enumerate(wanted.hosts)}
    told = published(
        wanted.plan.to_dict()["engines"],
        names,
        variable("KEY_FILE"),
        variable("SLURM_JOB_ID"),
        0,
        f"{variable('USER')}@{variable('SLURM_SUBMIT_HOST')}",
    )
    text = json.dumps({**told, "until": "UNTIL"}, indent=2, ensure_ascii=False)
    for slot, name in enumerate(names.values()):
        text = text.replace(name, variable(f"ADDRESS[{slot}]"))
    return text.replace('"UNTIL"', variable("ends"))
