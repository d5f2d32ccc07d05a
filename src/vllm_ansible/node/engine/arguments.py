"""Ask the installed vLLM whether it accepts a command line, and remember what it accepted."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..build_command import last_lines
from ..failure import Failure
from ..launcher import write_json
from ..process import bounded
from ..process.process import home_of

# vLLM imports in minutes where its files come over a network for the first time. A model's own code
# has no more time than this.
SECONDS = 900.0

# Run by the environment's own Python. It goes through vLLM's own `main`, so that whatever that does
# to a command line happens here too; only what would start the server is replaced. The collector of
# garbage, which finds none among modules, would take a quarter of the time.
SCRIPT = """
import argparse, difflib, gc, importlib, json, os, re, sys, tempfile, types
gc.disable()
question = json.load(sys.stdin)
deep, caches = question["deep"], tempfile.TemporaryDirectory()
# An engine's own caches belong to its service.
os.environ.update(HF_HOME=caches.name, HF_HUB_OFFLINE="1", VLLM_CACHE_ROOT=caches.name)
import vllm.entrypoints.cli.main as cli
from vllm.entrypoints.cli.serve import ServeSubcommand

class Refused(Exception):
    close = None
    fix = ""

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
    named = name and str(name).lower() != "auto"
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum as Backend
    except ImportError:
        # A release that keeps them elsewhere: its own start has to tell.
        return
    if not named:
        return prove_latent(args, None)
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
    prove_latent(args, chosen)

def prove_latent(args, chosen):
    # On a CPU the processor decides which backend computes latent attention (MLA), and AMX's takes
    # one type alone. vLLM finds out while it loads weights.
    try:
        with open(os.path.join(getattr(args, "model_tag", None) or args.model, "config.json"),
                  encoding="utf-8") as file:
            config = json.load(file)
        import torch
        from vllm.platforms import current_platform
        config = config.get("text_config") or config
        dtype = str(args.dtype).replace("torch.", "")
        if dtype == "auto":
            # It computes in bfloat16 what is kept in float32.
            dtype = str(config.get("dtype") or config.get("torch_dtype")).replace("float32", "")
        dtype = getattr(torch, {"half": "float16", "float": "float32"}.get(dtype, dtype), None)
        if dtype is None or not config.get("kv_lora_rank") or not current_platform.is_cpu():
            return
        wanted = types.SimpleNamespace(use_mla=True, use_sparse=False)
        module, _, taken = current_platform.get_attn_backend_cls(chosen, wanted).rpartition(".")
        taken = getattr(importlib.import_module(module), taken)
        name, able = taken.get_name(), taken.supported_dtypes
    except Exception:
        # Another release, or no directory: its own start has to tell.
        return
    if dtype not in able:
        able = ", ".join(str(one).replace("torch.", "") for one in able)
        dtype = str(dtype).replace("torch.", "")
        error = Refused(f"its attention backend for this processor, {name}, computes in {able}, "
                        f"not in {dtype}")
        error.close = {}
        error.fix = (f"vllm_args: {{dtype: {able.partition(',')[0]}}}, or the backend of every "
                     "processor: vllm_args: {attention_backend: CPU_MLA}")
        raise error

def configure(args, environment):
    # What only the start of an engine refuses: a context that is longer than the model's, a type or
    # quantization that it has not. Whatever else goes wrong here is for the start to tell.
    from vllm.engine.arg_utils import AsyncEngineArgs
    os.environ.update(environment)
    if getattr(args, "model_tag", None):
        args.model = args.model_tag
    if not os.path.isdir(args.model):
        return
    try:
        AsyncEngineArgs.from_cli_args(args).create_model_config()
    except ValueError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        told = [line for line in lines if line.startswith("Value error, ")]
        words = told[0][len("Value error, "):] if told else str(error)
        refused = Refused(re.sub(r" \\[type=value_error.*", "", words))
        refused.close = {}
        raise refused from error
    except Exception:
        pass

def judge(args):
    prove(args)
    if deep:
        configure(args, environment)

def one_line(text):
    return " ".join(text.split())[:400]

options = []
argparse.ArgumentParser.error = refuse
ServeSubcommand.subparser_init = remember
ServeSubcommand.cmd = staticmethod(judge)
answers = {}
before = dict(os.environ)
for name, arguments in question["lines"].items():
    environment = question["environments"].get(name, {})
    sys.argv = ["vllm", "serve", *arguments]
    try:
        cli.main()
        answers[name] = {"ok": True}
    except Refused as error:
        answers[name] = {"ok": False, "complaint": one_line(str(error)),
                         "close": close(str(error)) if error.close is None else error.close,
                         **({"fix": error.fix} if error.fix else {})}
    except SystemExit:
        answers[name] = {"ok": False, "complaint": "it would print help and end", "close": {}}
    except (ValueError, TypeError, OSError) as error:
        complaint = one_line(str(error)) or type(error).__name__
        answers[name] = {"ok": False, "complaint": complaint, "close": {}}
    os.environ.clear()
    os.environ.update(before)
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


def ask(
    python: str,
    lines: Mapping[str, Sequence[str]],
    deep: bool = False,
    environments: Optional[Mapping[str, Mapping[str, str]]] = None,
    user: Optional[str] = None,
) -> dict[str, dict[str, Any]]:
    """Return the verdict of vLLM's parser on each command line, by name.

    deep: also of what checks the model's configuration, which takes seconds more. environments: of
    the engines themselves, by name. user: who asks where root calls: a model's configuration may
    be code of its own, and runs as whoever serves the model.
    """
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    identity = None
    if user and os.geteuid() == 0:
        name, home = home_of(user)
        entry = pwd.getpwnam(user)
        gids = [entry.pw_gid, *os.getgrouplist(user, entry.pw_gid)]
        identity = bounded.User(entry.pw_uid, gids)
        environment.update(HOME=home, USER=name, LOGNAME=name)
        environment.pop("TMPDIR", None)  # may be root's own
    question = {
        "lines": {name: list(arguments) for name, arguments in lines.items()},
        "environments": environments or {},
        "deep": deep,
    }
    command = [python, "-c", SCRIPT]
    ended = bounded.run(command, environment, SECONDS, json.dumps(question), identity)
    try:
        answers = _answers(ended)
    except (ValueError, IndexError, TypeError) as error:
        said = last_lines(ended.errors or ended.output)
        if ended.status is None:
            said = f"no answer within {SECONDS:g} seconds, it was ended" + (said and f": {said}")
        raise ArgumentsError(
            "vLLM's argument parser could not be asked",
            expected="an answer of vllm serve's parser",
            found=said or f"exit status {ended.status}",
            where=python,
            fix="run the stage install; it proves that vLLM imports on this host",
        ) from error
    return answers


def _answers(ended: bounded.Ended) -> dict[str, dict[str, Any]]:
    """Return what a program that came to its end has answered on its last line."""
    if ended.status is None:
        raise ValueError("it was ended")
    return dict(json.loads(ended.output.strip().splitlines()[-1]))


def refusal(name: str, answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the failure of one engine in the words of vLLM, with what was probably meant."""
    close = answer.get("close") or {}
    meant = "; ".join(f"{word} is near {', '.join(match)}" for word, match in close.items())
    return {
        "msg": f"vLLM refuses the arguments of engine {name}: {answer['complaint']}",
        "expected": meant or "arguments that vllm serve accepts",
        "found": str(answer["complaint"]),
        "where": f"vllm_args of engine {name}",
        "fix": answer.get("fix")
        or "correct vllm_args; `vllm serve --help=all` lists what this version accepts",
    }
