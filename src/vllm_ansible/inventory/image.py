"""Refuse what does not go together where the engine comes in a container image, or does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_ansible.inventory.variables import Unresolved
from vllm_ansible.node.image.recipe import ADVICE, PINNED, secret_names
from vllm_ansible.plan.contained import no_ray
from vllm_ansible.plan.pairs import in_image
from vllm_ansible.plan.plan import Plan
from vllm_ansible.plan.roles import DECODE, PREFILL
from vllm_ansible.problem import Problem

# Each says something of an image, and nothing of an environment.
OF_IMAGES = (
    "engine_image",
    "engine_image_file",
    "engine_image_sha256",
    "engine_image_packages",
    "engine_image_mounts",
    "engine_image_privileged",
    "engine_image_ipc",
)
OF_ENVIRONMENTS = (
    "engine_build",
    "environment_path",
    "environment_requirements",
    "environment_shared_dir",
)
Where = Callable[[str], str]


def wrong(variables: Mapping[str, Any], plan: Plan | None, where: Where) -> list[Problem]:
    """Return what is wrong with the variables of the engine's image, each as one problem."""
    names = (*OF_IMAGES, *OF_ENVIRONMENTS, "engine_source")
    if any(isinstance(variables.get(name), Unresolved) for name in names):
        return []
    if variables.get("engine_source") != "image":
        return [_unused(name, where) for name in OF_IMAGES if variables.get(name)]
    name, file, sha256 = (variables.get(one) for one in OF_IMAGES[:3])
    problems = [_both(one, where) for one in OF_ENVIRONMENTS if variables.get(one)]
    if bool(name) == bool(file):
        problems.append(_one_of(bool(name), where))
    elif bool(file) != bool(sha256):
        problems.append(_checksum(bool(file), where))
    problems += _packages(variables.get("engine_image_packages"), where)
    if variables.get("engine_image_packages"):
        problems += _secrets(variables.get("sources_environment"), where)
    problems += _mounts(variables.get("engine_image_mounts"), where)
    for one in plan.engines if plan else ():
        if one.ray_processes():
            problems.append(_placed(no_ray(one.name), where("engines")))
        if one.role in (PREFILL, DECODE):
            problems.append(_placed(in_image(one.name, one.role), where("engines")))
    return problems


def _unused(name: str, where: Where) -> Problem:
    return Problem(
        f"{name} says something of an image, and engine_source is not image",
        expected="engine_source: image",
        found="engine_source: environment",
        where=where(name),
        fix=f"set engine_source: image, or remove {name}",
    )


def _both(name: str, where: Where) -> Problem:
    return Problem(
        f"{name} and engine_source: image exclude each other",
        expected="an image, or an environment",
        found=f"an image, and {name}",
        where=where(name),
        fix=f"remove {name}: the image brings its own Python and vLLM",
    )


def _one_of(both: bool, where: Where) -> Problem:
    return Problem(
        "engine_source: image needs either engine_image or engine_image_file",
        expected="one of them",
        found="both" if both else "neither",
        where=where("engine_image" if both else "engine_source"),
        fix="name an image of a registry, or the tar of one with its engine_image_sha256",
    )


def _checksum(file: bool, where: Where) -> Problem:
    missing, given = ("sha256", "file") if file else ("file", "sha256")
    return Problem(
        f"engine_image_{given} needs engine_image_{missing}",
        expected="the tar of an image and its checksum",
        found=f"engine_image_{given} alone",
        where=where(f"engine_image_{given}"),
        fix="give what `sha256sum` prints of the file"
        if file
        else "name the file; an image of a registry carries its digest in engine_image",
    )


def _packages(packages: Any, where: Where) -> list[Problem]:
    listed = packages if isinstance(packages, list) else []
    return [
        Problem(
            f"engine_image_packages holds {one!r}, which is not pinned",
            expected="name==version",
            found=str(one),
            where=where("engine_image_packages"),
            fix="write the exact version, so that every host gets the same",
        )
        for one in listed
        if not PINNED.fullmatch(str(one))
    ]


def _secrets(sources: Any, where: Where) -> list[Problem]:
    names = secret_names(sources) if isinstance(sources, Mapping) else []
    return [
        Problem(
            f"{name} of sources_environment holds a password, which the history of the image with "
            "engine_image_packages would show",
            expected="an address without a name or a password",
            found="a name or a password before the @ of an address",
            where=where("sources_environment"),
            fix=ADVICE,
        )
        for name in names
    ]


def _mounts(mounts: Any, where: Where) -> list[Problem]:
    listed = mounts if isinstance(mounts, list) else []
    return [
        Problem(
            f"engine_image_mounts holds {one!r}, which is not an absolute path of its own",
            expected="an absolute path without colons and commas",
            found=str(one),
            where=where("engine_image_mounts"),
            fix="write the path on the hosts; inside it is the same",
        )
        for one in listed
        if not str(one).startswith("/") or set(str(one)) & set(":,\n")
    ]


def _placed(problem: Problem, place: str) -> Problem:
    return Problem(problem.message, problem.expected, problem.found, place, problem.fix)
