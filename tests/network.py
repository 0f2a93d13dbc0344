"""Commands that run without network."""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# A network namespace of its own has no interface but the loopback, which is down at first (SIOCSIFFLAGS: IFF_UP | IFF_RUNNING).
LOOPBACK_UP = "import fcntl, os, socket, struct, sys; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x41)); "
NAMESPACE = ["unshare", "--map-root-user", "--net", sys.executable, "-S", "-c", f"{LOOPBACK_UP}os.execvp(sys.argv[1], sys.argv[1:])"]


@functools.cache
def namespaces_allowed() -> bool:
    """Whether the system gives this user a network namespace, as containers often do not."""
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def cut_off(command: list[str]) -> list[str]:
    """The command in a network namespace of its own, where that is allowed."""
    return [*NAMESPACE, *command] if namespaces_allowed() else command


def watched(environment: Mapping[str, str], log: Path) -> dict[str, str]:
    """An environment whose Python processes reach only this machine and write every other attempt to ``log``; without settings of a hub."""
    hub = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_")
    clean = {name: value for name, value in environment.items() if not name.startswith(hub)}
    path = os.pathsep.join([str(Path(__file__).parent / "no_network"), *filter(None, [clean.get("PYTHONPATH")])])
    return clean | {"PYTHONPATH": path, "NETWORK_LOG": str(log), "HF_HOME": str(log.with_name("hub"))}
