"""Hosts of a lab as the machines of an emulated cloud: what is launched answers over SSH."""

from __future__ import annotations

import ipaddress

from vllm_ansible.lab import Lab


class LabMachines:
    """Each host is rented to one instance at a time.

    `silent` is how many of the next launches get a machine that is up and never answers: an address
    of the lab's network that nobody has. `first` names hosts that are rented before others.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.rented: dict[str, str] = {}
        self.silent = 0
        self.first: list[str] = []

    def start(self, instance: str) -> tuple[str, str]:
        """Rent the next free host; return its two addresses."""
        if self.silent > 0:
            self.silent -= 1
            subnet = ipaddress.ip_network(self.lab.record.networks[0].subnet)
            nobody = str(list(subnet.hosts())[-1])
            return nobody, nobody
        free = [one.name for one in self.lab.record.hosts if one.name not in self.rented.values()]
        host = self.first.pop(0) if self.first else free[0]
        self.rented[instance] = host
        networks = self.lab.record.networks
        return self.lab.address(host, networks[0].role), self.lab.address(host, networks[-1].role)

    def stop(self, instance: str) -> None:
        """Take a host back."""
        self.rented.pop(instance, None)
