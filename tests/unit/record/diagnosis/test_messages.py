"""What is said of messages that the software's own source raises, inside a log around them.

data/messages holds start-up and serving errors of vLLM, SGLang, Ray, transformers, NCCL and others,
each with version, file and function. They were drawn by the hash of their words, those that a user
can meet were kept, and what an answer has to say was written down before any was judged: a was
learned from, b and c were held out until docs/failures.md had their counts.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.record.diagnosis.explained import USUAL
from vllm_ansible.record.diagnosis.verdict import diagnose

DATA = Path(__file__).parent / "data" / "messages"
MESSAGES = {half: yaml.safe_load((DATA / f"{half}.yaml").read_text()) for half in "abc"}
SITE = "/opt/venv/lib/python3.12/site-packages"
# What repeats the words of a line, and not more.
_OWN = re.compile(r'(?:: |\(the line says: )".*"\)?', re.DOTALL)
_HANDED_ON = re.compile("^Not known from this line|that the line names")


def number(text: str, of: int) -> int:
    return int(sha256(text.encode()).hexdigest(), 16) % of


def frames(origin: str) -> list[str]:
    *_, path, function = origin.split()
    return [f'  File "{SITE}/{path}", line 1, in {function}', "    raise error"]


def front(said: str, origin: str) -> str:
    """The server's process ends before it has engines."""
    return "\n".join(
        [
            "INFO 11-20 10:31:01 [api_server.py:1896] vLLM API server version 0.20.2",
            "Traceback (most recent call last):",
            '  File "/opt/venv/bin/vllm", line 10, in <module>',
            "    sys.exit(main())",
            f'  File "{SITE}/vllm/entrypoints/cli/main.py", line 54, in main',
            "    args.dispatch_function(args)",
            *frames(origin),
            said,
        ]
    )


def checked(said: str, origin: str) -> str:
    """A configuration's own check, wrapped by pydantic."""
    kind, words = said.split(": ", 1)
    if kind != "ValueError":
        return front(said, origin)
    return "\n".join(
        [
            "(APIServer pid=71) INFO 11-20 10:31:01 [utils.py:253] non-default args: {}",
            "(APIServer pid=71) Traceback (most recent call last):",
            f'(APIServer pid=71)   File "{SITE}/vllm/engine/arg_utils.py", line 1394, in create',
            "(APIServer pid=71)     config = VllmConfig(",
            "(APIServer pid=71) pydantic_core._pydantic_core.ValidationError: 1 validation error "
            "for VllmConfig",
            f"(APIServer pid=71)   Value error, {words} [type=value_error, "
            "input_value=ArgsKwargs((), {'model': 'm'}), input_type=ArgsKwargs]",
            "(APIServer pid=71)     For further information visit "
            "https://errors.pydantic.dev/2.12/v/value_error",
        ]
    )


def engine(said: str, origin: str) -> str:
    """The engine's core fails, and the server reports that it has."""
    core = "(EngineCore_DP0 pid=211) ERROR 11-20 10:31:09 [core.py:936] "
    return "\n".join(
        [
            "(APIServer pid=71) INFO 11-20 10:31:01 [model.py:547] Using max model len 4096",
            "(EngineCore_DP0 pid=211) INFO 11-20 10:31:04 [core.py:77] Initializing a V1 LLM "
            "engine (v0.11.0) with config: model='m', enforce_eager=False",
            f"{core}EngineCore failed to start.",
            f"{core}Traceback (most recent call last):",
            f'{core}  File "{SITE}/vllm/v1/engine/core.py", line 927, in run_engine_core',
            f"{core}    engine_core = EngineCoreProc(*args, **kwargs)",
            *(f"{core}{one}" for one in frames(origin)),
            f"{core}{said}",
            "(APIServer pid=71) RuntimeError: Engine core initialization failed. See root cause "
            "above. Failed core proc(s): {'EngineCore_DP0': 1}",
        ]
    )


def worker(said: str, origin: str) -> str:
    """A worker fails; the core that waits for it, and the server, report that."""
    rank = "(Worker_TP1 pid=311) ERROR 11-20 10:31:09 [multiproc_executor.py:597] "
    core = "(EngineCore_DP0 pid=211) ERROR 11-20 10:31:11 [core.py:708] "
    return "\n".join(
        [
            f"{rank}WorkerProc failed to start.",
            f"{rank}Traceback (most recent call last):",
            f'{rank}  File "{SITE}/vllm/v1/executor/multiproc_executor.py", line 571, in main',
            f"{rank}    worker = WorkerProc(*args, **kwargs)",
            *(f"{rank}{one}" for one in frames(origin)),
            f"{rank}{said}",
            "(Worker_TP1 pid=311) INFO 11-20 10:31:10 [multiproc_executor.py:558] Parent process "
            "exited, terminating worker",
            f"{core}EngineCore failed to start.",
            f"{core}Exception: WorkerProc initialization failed due to an exception in a "
            "background process. See stack trace for root cause.",
            "(APIServer pid=71) RuntimeError: Engine core initialization failed. See root cause "
            "above. Failed core proc(s): {}",
        ]
    )


def over_ray(said: str, origin: str) -> str:
    """An actor of Ray on another host fails, and what called it prints the whole again."""
    kind = said.split(": ", 1)[0]
    head = "(EngineCore pid=4410) ERROR 11-20 10:31:09 [core.py:700] "
    actor = "\x1b[36mray::RayWorkerWrapper.execute_method()\x1b[39m (pid=812, ip=10.0.0.6)"
    return "\n".join(
        [
            "2026-11-20 10:31:02,123\tINFO worker.py:1879 -- Connecting to existing Ray cluster",
            "(RayWorkerWrapper pid=812, ip=10.0.0.6) ERROR 11-20 10:31:08 "
            "[worker_base.py:620] Error executing method 'load_model'. This might cause deadlock "
            "in distributed execution.",
            f"{head}EngineCore failed to start.",
            f"{head}Traceback (most recent call last):",
            f"{head}ray.exceptions.RayTaskError({kind.split('.')[-1]}): {actor}",
            *(f"{head}{one}" for one in frames(origin)),
            f"{head}{said}",
            "(APIServer pid=71) RuntimeError: Engine core initialization failed. See root cause "
            "above. Failed core proc(s): {'EngineCore': 1}",
        ]
    )


def of_nccl(said: str, origin: str) -> str:
    place = origin.split()[2].removeprefix("src/")
    return "\n".join(
        [
            "gpu-1:311:311 [1] NCCL INFO NCCL version 2.28.3+cuda12.9",
            "",
            f"gpu-1:311:388 [1] {place}:214 NCCL WARN {said}",
            "gpu-1:311:388 [1] NCCL INFO init.cc:1437 -> 2",
            engine(
                "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/"
                "distributed/c10d/NCCLUtils.cpp:94, unhandled system error (run with "
                "NCCL_DEBUG=INFO for details), NCCL version 2.28.3",
                "vllm 0.20.2 vllm/distributed/device_communicators/pynccl.py __init__",
            ),
        ]
    )


def of_daemon(said: str, origin: str) -> str:
    daemon, file = origin.split()[2].split(":")
    return "\n".join(
        [
            f"[2026-11-20 10:31:01,010 I 71 71] ({daemon}) main.cc:120: Starting",
            f"[2026-11-20 10:31:09,120 E 71 71] ({daemon}) {file}:212: {said}",
        ]
    )


def said_by_daemon(said: str, origin: str) -> str:
    del origin
    return f"2026-11-20 10:31:09,123\tERROR services.py:1355 -- {said}"


def log_of(one: dict[str, Any]) -> str:
    """Return a log with the message in it, as the part of the software writes it that raises it."""
    said, origin = str(one["said"]), str(one["from"])
    package, path = origin.split()[0], origin.split()[2]
    if package == "nccl":
        shape = of_nccl
    elif ":" in path:
        shape = of_daemon
    elif one.get("level"):
        shape = said_by_daemon
    elif re.search("ray/scripts|arg_utils.*human|entrypoints/", origin) or "error: " in said[:20]:
        shape = front
    elif re.search("vllm/config/|arg_utils|envs", path):
        shape = (front, checked, checked)[number(said, 3)]
    elif re.search("v1/engine|kv_cache_|vllm/utils/|tokeniz", path):
        shape = (engine, front)[number(said, 2)] if "tokeniz" in path else engine
    else:
        shape = (engine, worker, over_ray)[number(said, 3)]
    return shape(said, origin)


def answered(one: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return how well the answer to a message does, and the answer."""
    answer = diagnose("It did not start", {"gpu-1 serve": log_of(one)}, {})
    cause = " / ".join(answer.get(name, "") for name in ("cause", "otherwise"))
    known = re.search(one["cause"], _OWN.sub("", cause), re.IGNORECASE)
    named = re.search(one["cause"], cause, re.IGNORECASE)
    helps = re.search(one["fix"], answer.get("fix", ""), re.IGNORECASE)
    if not cause.strip(" /"):
        return "none", answer
    if named and helps:
        return "right" if known else "right, in the line's own words", answer
    if named:
        return "cause without its fix", answer
    if _HANDED_ON.search(cause):
        return "line handed on", answer
    return "wrong guess" if cause.startswith(USUAL) else "wrong", answer


@pytest.mark.parametrize("half", MESSAGES)
def test_what_a_program_says_of_itself_gets_its_cause_and_its_fix(half: str) -> None:
    answers = {str(one["said"]): answered(one) for one in MESSAGES[half]}
    missed = [
        f"{answers[one['said']][0]}: {one['said']} -> {answers[one['said']][1].get('cause')}, "
        f"{answers[one['said']][1].get('fix')}"
        for one in MESSAGES[half]
        if not one.get("open") and not answers[one["said"]][0].startswith("right")
    ]
    assert not missed, "\n".join(missed)
    wrong = [said for said, (how, _) in answers.items() if how == "wrong"]
    assert not wrong, wrong


def test_no_message_stands_in_two_parts() -> None:
    said = [one["said"] for half in MESSAGES.values() for one in half]
    assert len(said) == len(set(said))
    assert {half: len(of) for half, of in MESSAGES.items()} == {"a": 140, "b": 109, "c": 56}
