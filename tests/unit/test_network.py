"""The tests' own cut from the network: what it refuses and reports, so that a run without report has asked for nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network import cut_off, namespaces_allowed, watched

ATTEMPTS = {
    "connection": "import socket; socket.socket().connect(('192.0.2.1', 443))",
    "connection in the sixth version": "import socket; socket.socket(socket.AF_INET6).connect(('2001:db8::1', 443))",
    "datagram": "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 53))",
    "name": "import socket; socket.getaddrinfo('hub.invalid', 443)",
    "web page": "import urllib.request; urllib.request.urlopen('https://hub.invalid')",
    "hub": "import huggingface_hub; huggingface_hub.HfApi().model_info('someone/model')",
}


def attempt(code: str, log: Path) -> str:
    """What is reported after a program that swallows every error of ``code``."""
    program = f"try:\n    {code}\nexcept BaseException: pass"
    subprocess.run([sys.executable, "-c", program], env=watched(os.environ, log), check=True, capture_output=True)
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("code", ATTEMPTS.values(), ids=ATTEMPTS)
def test_an_attempt_is_refused_and_reported_even_if_swallowed(code: str, tmp_path: Path):
    assert attempt(code, tmp_path / "log").startswith("socket.")


def test_processes_of_this_machine_talk_to_each_other(tmp_path: Path):
    server = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(('localhost', s.getsockname()[1]))"
    environment = watched(os.environ, tmp_path / "log")
    subprocess.run(cut_off([sys.executable, "-c", server]), env=environment, check=True)
    assert not (tmp_path / "log").exists()


def test_a_namespace_has_no_way_out(tmp_path: Path):
    if not namespaces_allowed():
        pytest.skip("the system gives no network namespace")
    code = "import socket; socket.socket().connect(('192.0.2.1', 443))"
    done = subprocess.run(cut_off([sys.executable, "-c", code]), capture_output=True, text=True)
    assert "Network is unreachable" in done.stderr
