"""Which addresses reach this machine alone."""

from __future__ import annotations

import ipaddress


def local(host: str) -> bool:
    """Nobody beyond this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
