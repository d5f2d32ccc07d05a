"""Write a small compiled package into a git repository whose commits are the same everywhere.

    python compiled_project.py DIRECTORY

prints the commit. Its build needs a C compiler, Python's headers and setuptools.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NAME = "vllm-ansible-answer"
MODULE = "vllm_ansible_answer"
MOMENT = "2026-01-01T00:00:00+00:00"
SOURCE = """#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) {{ return PyLong_FromLong({answer}); }}
static PyMethodDef methods[] = {{{{"answer", answer, METH_NOARGS, ""}}, {{NULL}}}};
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{module}", "", -1, methods}};
PyMODINIT_FUNC PyInit_{module}(void) {{ return PyModule_Create(&module); }}
"""
PROJECT = """[build-system]
requires = ["setuptools>=75"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"

[tool.setuptools]
ext-modules = [{{name = "{module}", sources = ["answer.c"]}}]
"""


def project(version: str = "1.0", answer: str = "42") -> dict[str, str]:
    """Return the files of the package; the answer is C, so it may also be wrong."""
    return {
        "answer.c": SOURCE.format(answer=answer, module=MODULE),
        "pyproject.toml": PROJECT.format(name=NAME, module=MODULE, version=version),
    }


def commit(repository: Path, files: dict[str, str]) -> str:
    """Make the files the newest commit of a repository, which is made, and return the commit."""
    repository.mkdir(parents=True, exist_ok=True)
    if not (repository / ".git").exists():
        _git(repository, "init", "--quiet")
    for name, text in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _git(repository, "add", "--all")
    if _git(repository, "status", "--porcelain"):
        _git(repository, "commit", "--quiet", "--no-gpg-sign", "--message=Answer")
    return _git(repository, "rev-parse", "HEAD")


def _git(repository: Path, *arguments: str) -> str:
    person = {"NAME": "Somebody", "EMAIL": "somebody@example.com", "DATE": MOMENT}
    environment = {
        **{
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in person.items()
        },
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


if __name__ == "__main__":
    print(commit(Path(sys.argv[1]), project()))
