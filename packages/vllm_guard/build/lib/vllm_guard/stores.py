"""Let the store of a torch process group listen where it is asked to, and nowhere else.

`torch.distributed.TCPStore` takes an address and listens on all of them: whoever reaches the host
over any network may read and write what the ranks tell each other.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

import torch.distributed


def bind() -> None:
    """Replace the constructor; a second call finds it replaced."""
    store = torch.distributed.TCPStore
    original = store.__init__
    if getattr(original, "is_bound", False):
        return

    def bound(
        self: Any,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        *more: Any,
        **named: Any,
    ) -> None:
        # Five more positions lead up to the descriptor; nobody goes that far.
        if is_master and len(more) <= 3 and named.get("master_listen_fd") is None:
            descriptor, port = listen(host_name, port)
            if descriptor is not None:
                named["master_listen_fd"] = descriptor
        original(self, host_name, port, world_size, is_master, *more, **named)

    bound.is_bound = True  # type: ignore[attr-defined]  # a mark for the second call
    store.__init__ = bound


def platform() -> None:
    """Do so as a platform plugin, too, which Ray's workers load before they make a store."""
    bind()


def listen(host_name: str, port: int) -> tuple[int | None, int]:
    """Return a listening descriptor and its port; none where this process listens already.

    A process group joins the store that was made for it before: one process, one port.
    """
    family, kind, _, _, address = socket.getaddrinfo(host_name, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(4096)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None, port
    port = listener.getsockname()[1]
    return listener.detach(), port
