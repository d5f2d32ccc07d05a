"""What a kind of accelerator is to everything outside its own files, and which kinds there are.

Adding one is a module in `platforms/` with a `PLATFORM`. What has to travel to hosts lies beside
it in `node/accelerators/` (`catalogue.py` there), checks of its own in
`verify/preflight/platforms`, its driver in a role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from . import platforms as rooms

# What an inventory says where a host is to tell.
AUTO = "auto"


@dataclass(frozen=True, slots=True)
class RankOfData:
    """What a platform is told of a data-parallel rank: an exchange of tokens is sized by it.

    `step_tokens` and `hidden_size` are 0 where nobody knows. `experts` says whether ranks share
    experts.
    """

    interface: str
    ranks: int
    step_tokens: int
    hidden_size: int
    experts: bool


@dataclass(frozen=True, slots=True)
class Runtime:
    """What containers need to be handed devices: a package, and a program that lists devices."""

    package: str
    what: str
    fix: str
    device_list: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of accelerator: what differs by it, asked by its name in `accelerator`.

    `devices` is false where the host's own processors compute, whose memory nobody plans. `serves`
    is false for one that is planned for and not run. `software` is what vLLM's kernels of it are
    called by.

    Engines: `visible_devices` is the variable with the devices of a process, `renumbered` says that
    a container counts from 0 those that it is given. `eager` and `kv_cache_bytes` are what an
    engine gets that does not say; `step_tokens` the least tokens of a step of several data ranks,
    where a buffer is sized by them. `whole_experts` says that data ranks may each hold whole
    experts; `expert_parallel` that an engine without data ranks may, too; `rank_variables` is what
    a data rank needs in its environment. `first_engine` tells of a release of vLLM that its ranks
    meet by their environment, with `first_engine_variables`; `programs` are directories in which
    its compilers usually lie, searched last; `no_dynamo` why Dynamo cannot stand before its ranks.
    `efa` says that its collective library runs over EFA.

    Environments: `lock` names the shipped lock for a host of a cluster (nothing where none is) or
    refuses, `lock_why` says why it is that one, `locks` are all that it may be, by their Pythons,
    the usual one last. `packages` are this project's own in a locked environment,
    `given_packages` over one that is given. `torch_backend` is what the index of torch is chosen
    by. `builds_for_devices` says that wheels built on a host are for its devices and toolkit,
    `compiles_at_start` that an engine compiles FlashInfer's kernels when it first starts.

    Hosts: `driver_role` checks or manages the driver; `judged_by_role` says that it tells more of
    silent devices than a refusal before it; `health_role` publishes the devices' health.
    `stays_numbered` says that a device keeps its number while another is silent.
    `runtime` is what containers need. `peer_module` is the kernel's module for cards that read a
    device's memory. `probed` says that `accelerator_probe` can measure it.

    Measurements: `collectives` is its library, `collective_variables` what ranks of a measurement
    have in their environment, `path_in_log` says that the library's log names the way it took,
    `published` that figures are published of it.

    Planning: `plain` is the model whose speed stands in for one that is not listed. `no_fp8` is
    what to do about a model in FP8; `old_widening` says that 4 bits are widened before the
    products, `widens` that kernels widen what the device has no products for, `own_fp4_kernels`
    that there are kernels for experts in FP4. `own_all_reduce` says that vLLM has a kernel for it.
    `prints_all_memory` says that engines print all that is in use as weights.
    """

    name: str
    title: str
    software: str
    devices: bool = True
    serves: bool = True
    visible_devices: str = ""
    renumbered: bool = False
    eager: bool = False
    kv_cache_bytes: int = 0
    step_tokens: int = 0
    whole_experts: bool = True
    expert_parallel: bool = True
    rank_variables: Callable[[RankOfData], Mapping[str, str]] = lambda _: {}
    first_engine: Callable[[str], bool] = lambda _: False
    first_engine_variables: Mapping[str, str] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    no_dynamo: str = ""
    efa: bool = False
    lock: Callable[[Sequence[Mapping[str, Any]]], str] = lambda _: ""
    lock_why: Callable[[Sequence[Mapping[str, Any]]], str] = lambda _: ""
    locks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    packages: tuple[str, ...] = ("vllm_guard",)
    given_packages: tuple[str, ...] = ("vllm_guard",)
    torch_backend: str = ""
    builds_for_devices: bool = False
    compiles_at_start: bool = False
    no_lock_fix: str = "give environment_requirements or environment_path"
    driver_role: str = ""
    judged_by_role: bool = False
    health_role: str = ""
    stays_numbered: bool = False
    runtime: Runtime | None = None
    peer_module: str = ""
    probed: bool = False
    collectives: str = "none"
    collective_variables: Callable[[str], Mapping[str, str]] = lambda _: {}
    path_in_log: bool = False
    published: bool = False
    plain: str = ""
    no_fp8: str = ""
    old_widening: bool = False
    widens: bool = False
    own_fp4_kernels: bool = False
    own_all_reduce: bool = False
    prints_all_memory: bool = False


@lru_cache(maxsize=1)
def platforms() -> Mapping[str, Platform]:
    """Return every kind of accelerator by its name."""
    found = {}
    for module in sorted(one.name for one in iter_modules(rooms.__path__)):
        one = import_module(f".{module}", rooms.__name__).PLATFORM
        assert isinstance(one, Platform)  # noqa: S101  a module of this package
        found[one.name] = one
    return found


def served() -> tuple[str, ...]:
    """Return the names that an inventory may say."""
    return tuple(name for name, one in platforms().items() if one.serves)


def platform(name: object) -> Platform:
    """Return a kind by its name.

    What is not known, such as `auto`, and what an inventory calls a device of its own, is taken for
    devices that have nothing of their own; an inventory's `accelerator` is checked elsewhere.
    """
    return platforms().get(str(name)) or Platform(str(name), str(name), USUAL_SOFTWARE)


def device_variables() -> tuple[str, ...]:
    """Return the variables by which processes are told their devices."""
    return tuple(one.visible_devices for one in platforms().values() if one.visible_devices)


def has_devices(name: object) -> bool:
    """Tell whether a host of this kind computes with devices and not with its own processors."""
    return platform(name).devices


# Kernels of what nobody knows are taken for those that vLLM is written for first.
USUAL_SOFTWARE = "cuda"
# What the scheduler of a cluster calls GPU where nothing says whose.
USUAL = "nvidia"
