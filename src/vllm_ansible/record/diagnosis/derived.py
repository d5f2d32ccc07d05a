"""Facts that follow from others: which CUDA is wanted, which splits divide, what a driver is."""

from __future__ import annotations

from collections.abc import Mapping

from .facts import Fact

# The oldest driver of each CUDA release's whole family, for Linux:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_DRIVERS = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}
_MOST_RANKS = 64


def derived(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts that follow from others, each with the source of what it follows from."""
    found: dict[str, Fact] = {}
    wanted = facts.get("wanted_cuda") or facts.get("torch_cuda")
    if wanted:
        found["wanted_cuda"] = wanted
        if driver := _DRIVERS.get(str(wanted.value).split(".")[0]):
            found["wanted_driver"] = Fact(driver, wanted.source)
    if architectures := facts.get("architectures"):
        _range(architectures, found)
    if "torch_cuda" in facts:
        major = str(facts["torch_cuda"].value).split(".")[0]
        found["torch_cuda_major"] = Fact(major, facts["torch_cuda"].source)
    for name in ("heads", "divided"):
        if name in facts and isinstance(value := facts[name].value, int):
            found["tensor_parallel_choices"] = Fact(_divisors(value), facts[name].source)
    if "package_paths" in facts and "user_site" not in facts:
        found["user_site"] = Fact(False, facts["package_paths"].source)
    if "shard" in facts and "shard_unit" in facts and "tensor_parallel" in facts:
        found.update(_shards(facts))
    return found


def _range(architectures: Fact, found: dict[str, Fact]) -> None:
    """Add the least and greatest compute capability that packages hold code for."""
    if not isinstance(architectures.value, tuple) or not architectures.value:
        return
    ordered = sorted(architectures.value, key=lambda one: [int(part) for part in one.split(".")])
    found["least_compute"] = Fact(ordered[0], architectures.source)
    found["most_compute"] = Fact(ordered[-1], architectures.source)


def _divisors(number: int) -> tuple[str, ...]:
    return tuple(str(one) for one in range(1, _MOST_RANKS + 1) if number % one == 0)


def _shards(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the tensor parallel sizes at which a weight's part is a whole number of units."""
    values = [facts[name].value for name in ("shard", "shard_unit", "tensor_parallel")]
    if not all(isinstance(one, int) for one in values):
        return {}
    part, unit, size = (int(one) for one in values if isinstance(one, int))
    whole = part * size
    fits = [one for one in range(1, size) if whole % one == 0 and (whole // one) % unit == 0]
    if not fits:
        return {}
    return {"tensor_parallel_choices": Fact(tuple(map(str, fits)), facts["shard"].source)}
