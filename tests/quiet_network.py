"""Run a program that is not told when the machine's addresses change.

Chromium breaks off every connection that is being made when an interface comes or goes, also those
to the machine itself (net::ERR_NETWORK_CHANGED), and no option of it says otherwise. Tests beside
it create and remove hosts, each with an interface. A seccomp filter refuses the netlink socket by
which it listens; it then takes the network as given.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
AF_NETLINK = 16
# The number of socket(2), and what seccomp_data calls the processor (linux/audit.h).
SOCKET_OF = {"x86_64": (41, 0xC000003E), "aarch64": (198, 0xC00000B7)}
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EAFNOSUPPORT
NUMBER, PROCESSOR, FIRST_ARGUMENT = 0, 4, 16


class Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse_netlink() -> None:
    """Let this process and all it starts get EAFNOSUPPORT for a netlink socket."""
    socket, processor = SOCKET_OF[os.uname().machine]
    steps = (
        (LOAD, 0, 0, PROCESSOR),
        (EQUAL, 0, 5, processor),
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 3, socket),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (EQUAL, 0, 1, AF_NETLINK),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    )
    instructions = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = Program(len(steps), instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    # Without it only root may filter.
    if os.geteuid() != 0 and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")


if __name__ == "__main__":
    refuse_netlink()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 the program is the caller's
