"""Who gives a cluster its hosts: what everybody may ask without speaking to a cloud.

Adding one is a module in `givers/` with a `GIVER`. A cloud that rents machines has a module with a
`PROVIDER` besides (`provider.py` says what is in it), an inventory plugin and an inventory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from . import givers as rooms


@dataclass(frozen=True, slots=True)
class Giver:
    """Who gives hosts.

    `name` is what `provision_provider` says, `gives` what its hosts are called in a sentence.
    `module` is that of its provider in this package, for one that rents machines and names each
    before it exists. `unfit` is what helps where a host is not fit, `replace` what to do in place
    of `replace.yml`, for one that rents nothing. `notices` says that a host can look for a notice
    of its end, `by_login_node` that hosts are reached by way of one, `restarts_bare` that hosts are
    containers whose start command starts our processes again: nothing else does. `limits` is what
    helps where /dev/shm, locked memory or open files are too small: it starts the containers.

    Records hide what is in files that `secret_files` (variables of the inventory) name, in
    `credentials`, and in variables of the environment that begin with `secret_variables`.
    """

    name: str
    gives: str
    module: str = ""
    unfit: str = "run the same command again, which replaces it; every try so far was as bad"
    replace: str = ""
    notices: bool = False
    by_login_node: bool = False
    restarts_bare: bool = False
    limits: str = ""
    secret_files: tuple[str, ...] = ()
    secret_variables: tuple[str, ...] = ()
    credentials: Callable[[], tuple[str, ...]] = tuple

    @property
    def rents(self) -> bool:
        """Tell whether it rents machines by the hour, each of which can be ended and replaced."""
        return bool(self.module)


NOBODY = Giver(
    name="",
    gives="hosts of its own",
    replace="take the host out of the inventory and put another one in, then run site.yml",
)


@lru_cache(maxsize=1)
def givers() -> Mapping[str, Giver]:
    """Return everybody who gives hosts, by name."""
    found = {}
    for module in sorted(one.name for one in iter_modules(rooms.__path__)):
        one = import_module(f".{module}", rooms.__name__).GIVER
        assert isinstance(one, Giver)  # noqa: S101  a module of this package
        found[one.name] = one
    return found


def giver(name: object) -> Giver:
    """Return who gives hosts, by what `provision_provider` says; nobody, where it says nothing.

    Of a name that is not known only the name is: inventories are checked elsewhere, and what was
    kept may be of a cloud that there is no more.
    """
    if not name:
        return NOBODY
    return givers().get(str(name)) or Giver(name=str(name), gives=str(name))
