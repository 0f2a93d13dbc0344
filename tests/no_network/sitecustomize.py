"""Python runs this at its start where this folder is on PYTHONPATH: from then on, only this machine can be reached.

An audit hook sees every connection and every look-up of a name that Python code asks for, in whichever library. One that leads elsewhere is
written to the file that NETWORK_LOG names and refused, so that an attempt is known even where its error is swallowed.
"""

import os
import socket
import sys

HERE = {"", "localhost", "0.0.0.0", "::", "::1", socket.gethostname()}
SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")  # of a socket, to an address
LOOK_UPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")  # of a host or an address


def host_of(event: str, arguments: tuple) -> str:
    """The host that an event leads to; empty where it leads to none, as with a Unix socket."""
    if event in SENDS and arguments[0].family not in (socket.AF_INET, socket.AF_INET6):
        return ""
    target = arguments[1] if event in SENDS else arguments[0]
    host = target[0] if isinstance(target, tuple) else target
    return "" if host is None else host.decode() if isinstance(host, bytes) else str(host)


def refuse(event: str, arguments: tuple) -> None:
    if event not in (*SENDS, *LOOK_UPS):
        return
    host = host_of(event, arguments)
    if host in HERE or host.startswith("127."):
        return
    with open(os.environ["NETWORK_LOG"], "a") as log:
        log.write(f"{event} {host}: {' '.join(sys.orig_argv)[:200]}\n")
    raise OSError(f"no network in this test: {event} {host}")


sys.addaudithook(refuse)
