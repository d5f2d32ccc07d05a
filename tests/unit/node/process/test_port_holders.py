from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.process import port_holders

ME = pwd.getpwuid(os.getuid()).pw_name
# Above what the kernel gives to processes (pid_max is 2^22 at most).
NO_PROCESS = 1 << 22


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def port(server: socket.socket) -> int:
    found: int = server.getsockname()[1]
    return found


def test_a_listener_is_named_with_command_number_and_user(port: int) -> None:
    command = Path("/proc/self/comm").read_text().strip()
    who = f"{command} (process {os.getpid()} of {ME})"
    assert port_holders.holders([port]) == [{"port": port, "pid": os.getpid(), "who": who}]


def test_only_ports_that_were_asked_for_are_looked_at(port: int) -> None:
    assert port_holders.holders([]) == []
    with socket.create_server(("127.0.0.1", 0)) as other:
        asked = other.getsockname()[1]
    assert port_holders.holders([asked]) == []


def test_a_listener_on_ipv6_holds_the_port_as_well() -> None:
    server = None
    with suppress(OSError):
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    if server is None:
        pytest.skip("this machine has no IPv6")
    with server:
        port = server.getsockname()[1]
        assert [one["pid"] for one in port_holders.holders([port])] == [os.getpid()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_listener_of_another_user_is_seen_but_not_known(
    server: socket.socket, port: int, as_nobody: Callable[..., Any]
) -> None:
    def look() -> list[dict[str, Any]]:
        server.close()  # what this process has inherited
        return port_holders.holders([port])

    found = as_nobody(look)
    assert found == [{"port": port, "pid": None, "who": "a process of another user"}]


def test_a_process_that_has_gone_is_known_by_its_number() -> None:
    assert port_holders.describe(NO_PROCESS) == f"process {NO_PROCESS}"


def test_a_kernel_without_ipv6_has_one_table(port: int, tmp_path: Path) -> None:
    tables = ("/proc/net/tcp", str(tmp_path / "tcp6"))
    assert port in port_holders.listeners(tables)


def test_the_module_reports_the_same(run_module: Callable[..., dict[str, Any]], port: int) -> None:
    for check in (False, True):
        result = run_module("port_holders_info", {"ports": [port]}, [], check=check)
        assert not result["changed"] and result["held"] == port_holders.holders([port])
