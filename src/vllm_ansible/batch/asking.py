"""The verb `vllm-ansible ask`: one question, and its answer as it comes."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence

from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.record.redact import redact_text, visible

from .answers import Answer
from .client import Client, Hopeless, Limits, Passing, Refused, Target, Unsent
from .prompts import Prompt, check_parameters
from .target import parameters
from .where import add_arguments, known_of, refuse, seconds, target_of

OK, FAILED, REFUSED = 0, 1, 2
MILLI = 1e-3


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask; 0 is answered, 1 that there was no answer, 2 that it was refused before it went."""
    options = parser().parse_args(arguments)
    try:
        return _answered(options)
    except PlanError as error:
        refuse(error)
        return REFUSED
    except KeyboardInterrupt:
        sys.stderr.write("\nvllm-ansible: stopped by a signal\n")
        return FAILED
    except BrokenPipeError:
        # Whoever read the answer has gone; nothing is left to be flushed at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _answered(options: argparse.Namespace) -> int:
    """Ask and show; raise PlanError for what cannot be asked."""
    target = target_of(options, known_of(options))
    prompt = _prompt(options)
    limits = Limits(options.timeout_seconds, options.timeout_seconds)
    try:
        answer = asyncio.run(_ask(target, prompt, limits))
    except (Unsent, Passing, Refused, Hopeless) as error:
        fix = getattr(error, "fix", "") or "ask again; `vllm-ansible status` looks at the engines"
        words = visible(redact_text(str(error)))
        refuse(PlanError(Problem("no answer", "an answer", words, target.url, fix)))
        return FAILED
    sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stderr.write(f"{told(target, answer)}\n")
    return OK


async def _ask(target: Target, prompt: Prompt, limits: Limits) -> Answer:
    async with Client(target, limits, 1, True, lambda: None, _show) as client:
        return await client.ask(prompt, lambda: None)


def _show(text: str, reasoning: str) -> None:
    """Show both where somebody looks, and the answer alone to whoever reads the output."""
    for stream, words in ((sys.stderr, reasoning), (sys.stdout, text)):
        # A terminal of another encoding shows what it can.
        known = getattr(stream, "encoding", None) or "utf-8"
        # What a model says may be anything: a terminal shows it and obeys nothing of it.
        shown = visible(words) if stream.isatty() else words
        stream.write(shown.encode(known, "replace").decode(known))
        stream.flush()


def told(target: Target, answer: Answer) -> str:
    """Return what the answer took, in one line."""
    seconds = answer.total_ms * MILLI
    parts = [f"{target.model} at {target.url}"]
    if answer.prompt_tokens is not None:
        parts.append(f"{answer.prompt_tokens} tokens of prompt")
    if answer.completion_tokens is not None:
        rate = answer.completion_tokens / seconds
        parts.append(f"{answer.completion_tokens} of answer in {seconds:.2f} s ({rate:.1f}/s)")
    if answer.ttft_ms is not None:
        parts.append(f"first one after {answer.ttft_ms:.0f} ms")
    return ", ".join([*parts, f"ended by {answer.finish_reason}"])


def _prompt(options: argparse.Namespace) -> Prompt:
    """Return the question as a prompt; raise PlanError for one without text."""
    try:
        text = sys.stdin.read() if options.question == "-" else options.question
    except UnicodeDecodeError as error:
        what = f"{error.reason} at byte {error.start}"
        raise PlanError(Problem("the question is not text", "UTF-8", what, "-")) from error
    if not text.strip():
        raise PlanError(Problem("there is no question", "some text", "none"))
    given = parameters(options.parameter)
    check_parameters(given, "--parameter")
    system = [{"role": "system", "content": options.system}] if options.system else []
    return Prompt("question", [*system, {"role": "user", "content": text}], given, 1)


def parser() -> argparse.ArgumentParser:
    """Return the parser of this verb."""
    made = argparse.ArgumentParser(
        prog="vllm-ansible ask",
        description="Ask a served model one question and print its answer as it comes; what it "
        "reasons before, and what it took, go to standard error.",
    )
    made.add_argument("question", help="its text, or - to read it from standard input")
    add_arguments(made)
    made.add_argument(
        "--timeout-seconds", type=seconds, default=600.0, help="limit for the whole answer (600)"
    )
    return made
