"""The verb `vllm-ansible send`: tagged prompts in, answers by tag out."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vllm_ansible import terminal as console
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.record.redact import redact_text, visible

from .client import Hopeless, Limits
from .prompts import PromptFile
from .results import Results
from .sender import Sender, Settings
from .target import Known, parameters
from .told import Told, closing, document
from .where import add_arguments, known_of, refuse, seconds, target_of

OK, FAILED, REFUSED = 0, 1, 2
STOPPED, GO_ON = "stopped by a signal", "run the same command again to resume"
# Nobody says what the server takes at once: few wait in its queue, and none of its seats is empty
# for long.
UNKNOWN_SEATS = 64
# Beside the connections: files, pipes, what Python keeps open.
SPARE_DESCRIPTORS = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Send; 0 is all answered, 1 that some are not, 2 that it was refused before anything went."""
    options = parser().parse_args(arguments)
    try:
        prompts = PromptFile(options.prompts, options.system, parameters(options.parameter))
        known = known_of(options)
        target = target_of(options, known)
        settings = _settings(options, known)
        digests = prompts.digests(target.model)
        output = options.output or options.prompts.with_suffix(".answers.jsonl")
        with Results(output, digests) as results:
            return _send(prompts, Sender(target, settings, results), results, len(digests), options)
    except PlanError as error:
        refuse(error, options.json)
        return REFUSED
    except KeyboardInterrupt:
        # While files are read or put in order; in between, signals end the sending itself.
        refuse(PlanError(Problem(STOPPED, fix=GO_ON)), options.json)
        return FAILED
    except OSError as error:
        refuse(
            PlanError(Problem(f"{error.filename or 'a file'}: {error.strerror or error}")),
            options.json,
        )
        return FAILED


def _send(
    prompts: PromptFile, sender: Sender, results: Results, total: int, options: argparse.Namespace
) -> int:
    """Send what is not answered, show it, and close with what it came to."""
    before, began = len(results.answered), time.monotonic()
    told = Told(sys.stderr, total, before)
    stopped, fix = "", ""
    try:
        asyncio.run(_watched(sender, prompts, told))
    except Hopeless as error:
        stopped, fix = redact_text(str(error)), error.fix
    except asyncio.CancelledError:
        stopped, fix = STOPPED, GO_ON
    finally:
        told.close()
    seconds = time.monotonic() - began
    results.finish()
    found = document(sender.tally, seconds, total, before, str(results.path), stopped)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return OK if found["ok"] else FAILED
    lines = closing(found)
    if stopped:
        lines += [*console.labelled("stopped", stopped, 3), *console.labelled("fix", fix, 3)]
    sys.stdout.write(visible("\n".join(lines)) + "\n")
    return OK if found["ok"] else FAILED


async def _watched(sender: Sender, prompts: PromptFile, told: Told) -> None:
    """Send, show it meanwhile, and end in order on Ctrl-C and a polite kill."""
    sending = asyncio.ensure_future(sender.send(prompts))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, sending.cancel)
    while not sending.done():
        await asyncio.wait([sending], timeout=told.interval)
        if not sending.done():
            told.show(sender.tally)
    await sending


def _settings(options: argparse.Namespace, known: Known) -> Settings:
    concurrency = options.concurrency or known.max_num_seqs
    if not concurrency:
        concurrency = UNKNOWN_SEATS
        sys.stderr.write(
            f"vllm-ansible: max_num_seqs of the engine is not known: {concurrency} at a time; "
            "--concurrency says otherwise\n"
        )
    _room(concurrency)
    return Settings(
        concurrency=concurrency,
        stream=options.stream,
        limits=Limits(options.timeout_seconds, options.silence_seconds),
        retries=options.retries,
        patience=options.patience_seconds,
    )


def _room(connections: int) -> None:
    """See that this process may open so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise PlanError(
            Problem(
                f"{connections} connections at once are not allowed here",
                expected=f"{wanted} open files",
                found=f"at most {hard}",
                where="ulimit -Hn",
                fix=f"--concurrency {max(1, hard - SPARE_DESCRIPTORS)}",
            )
        )
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def parser() -> argparse.ArgumentParser:
    """Return the parser of this verb."""
    made = argparse.ArgumentParser(
        prog="vllm-ansible send",
        description="Send many tagged prompts to a served model and keep each answer by its tag. "
        "Run the same command again to resume.",
    )
    made.add_argument("prompts", type=Path, help="JSON, or .jsonl with a prompt on each line")
    add_arguments(made)
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="answers; PROMPTS.answers.jsonl if not given",
    )
    made.add_argument(
        "-c",
        "--concurrency",
        type=_count,
        metavar="N",
        help="requests at once; max_num_seqs of the engine if not given",
    )
    made.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="take tokens as they come, which times the first one",
    )
    made.add_argument(
        "--timeout-seconds", type=seconds, default=3600.0, help="limit of one request (3600)"
    )
    made.add_argument(
        "--silence-seconds",
        type=seconds,
        default=600.0,
        help="limit without a token of a stream (600)",
    )
    made.add_argument(
        "--retries", type=int, default=5, metavar="N", help="attempts for one prompt (5)"
    )
    made.add_argument(
        "--patience-seconds",
        type=seconds,
        default=600.0,
        help="end the run after this silence of the server (600)",
    )
    made.add_argument("--json", action="store_true", help="print one JSON document at the end")
    return made


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value
