"""Loopback test of addresses."""

from __future__ import annotations

import ipaddress


def local(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
