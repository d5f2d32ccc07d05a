"""Ask the installed vLLM whether it accepts a command line, and remember what it accepted."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from .build_command import last_lines
from .failure import Failure
from .launcher import write_json

# Run by the environment's own Python. It goes through vLLM's own `main`, so that whatever that does
# to a command line happens here too; only what would start the server is replaced.
SCRIPT = """
import argparse, difflib, json, sys
import vllm.entrypoints.cli.main as cli
from vllm.entrypoints.cli.serve import ServeSubcommand

class Refused(Exception):
    close = None

def refuse(parser, message):
    raise Refused(message)

def remember(self, subparsers, original=ServeSubcommand.subparser_init):
    global options
    parser = original(self, subparsers)
    options = sorted(text for action in parser._actions for text in action.option_strings)
    return parser

def close(message):
    if not message.startswith("unrecognized arguments"):
        return {}
    words = {word.partition("=")[0] for word in message.split() if word.startswith("--")}
    known = [option for option in options if option.startswith("--")]
    return {word: match for word in sorted(words - set(known))
            if (match := difflib.get_close_matches(word, known, 3, 0.6))}

def prove(args):
    # The parser takes any name of an attention backend; the engine would end at its start.
    name = getattr(args, "attention_backend", None)
    config = getattr(args, "attention_config", None)
    name = name or (config.get("backend") if isinstance(config, dict) else
                    getattr(config, "backend", None))
    name = getattr(name, "name", name)
    if not name or str(name).lower() == "auto":
        return
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum as Backend
    except ImportError:
        # A release that keeps them elsewhere: its own start has to tell.
        return
    chosen = Backend.__members__.get(str(name).upper())
    if chosen is None:
        error = Refused(f"this vLLM has no attention backend {name}")
        near = difflib.get_close_matches(str(name).upper(), list(Backend.__members__), 3, 0.6)
        error.close = {str(name): near} if near else {}
        raise error
    try:
        chosen.get_class()
    except Exception as error:
        raise Refused(f"its attention backend {name} does not load: "
                      f"{type(error).__name__}: {error}") from error

def one_line(text):
    return " ".join(text.split())[:400]

options = []
argparse.ArgumentParser.error = refuse
ServeSubcommand.subparser_init = remember
ServeSubcommand.cmd = staticmethod(prove)
answers = {}
for name, arguments in json.load(sys.stdin).items():
    sys.argv = ["vllm", "serve", *arguments]
    try:
        cli.main()
        answers[name] = {"ok": True}
    except Refused as error:
        answers[name] = {"ok": False, "complaint": one_line(str(error)),
                         "close": close(str(error)) if error.close is None else error.close}
    except SystemExit:
        answers[name] = {"ok": False, "complaint": "it would print help and end", "close": {}}
    except (ValueError, TypeError, OSError) as error:
        complaint = one_line(str(error)) or type(error).__name__
        answers[name] = {"ok": False, "complaint": complaint, "close": {}}
print("\\n" + json.dumps(answers))
"""


class ArgumentsError(Failure):
    """vLLM could not be asked."""


def key(fingerprint: str, arguments: Sequence[str]) -> str:
    """Return what one accepted command line is remembered by."""
    return hashlib.sha256(json.dumps([fingerprint, list(arguments)]).encode()).hexdigest()


def remembered(path: str) -> list[str]:
    """Return the keys of what was accepted before."""
    try:
        with open(path, encoding="utf-8") as evidence:
            return list(json.load(evidence)["accepted"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def remember(path: str, keys: Sequence[str]) -> None:
    """Keep the command lines of now; those that are no longer wanted are forgotten."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_json(path, {"accepted": sorted(keys)})


def ask(python: str, lines: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return the verdict of vLLM's parser on each command line, by name."""
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    result = subprocess.run(  # noqa: S603  argv built here, no shell
        [python, "-c", SCRIPT],
        input=json.dumps({name: list(arguments) for name, arguments in lines.items()}),
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answers: dict[str, dict[str, Any]] = json.loads(result.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise ArgumentsError(
            "vLLM's argument parser could not be asked",
            expected="an answer of vllm serve's parser",
            found=last_lines(result.stderr or result.stdout) or f"exit status {result.returncode}",
            where=python,
            fix="run the stage install; it proves that vLLM imports on this host",
        ) from error
    return answers


def refusal(name: str, answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the failure of one engine in the words of vLLM, with what was probably meant."""
    close = answer.get("close") or {}
    meant = "; ".join(f"{word} is near {', '.join(match)}" for word, match in close.items())
    return {
        "msg": f"vLLM refuses the arguments of engine {name}: {answer['complaint']}",
        "expected": meant or "arguments that vllm serve accepts",
        "found": str(answer["complaint"]),
        "where": f"vllm_args of engine {name}",
        "fix": "correct vllm_args; `vllm serve --help=all` lists what this version accepts",
    }
