"""Which driver a host has, and where it came from."""

from __future__ import annotations

from vllm_ansible.drivers import packages as names
from vllm_ansible.drivers.difference import Look


def version(look: Look) -> str:
    """Return the version a host has after its next boot: of its packages, else what is there."""
    return str(
        names.packaged(look["packages"]) or look["library"]["version"] or look["module"]["loaded"]
    )


def foreign(look: Look) -> bool:
    """Tell whether there is a driver that no package brought: an installer's, or a container's."""
    return bool(version(look)) and not names.packaged(look["packages"])


def lent(look: Look) -> bool:
    """Tell whether the driver is that of the machine around a container, daemons and all."""
    return foreign(look) and bool(look["container"])
