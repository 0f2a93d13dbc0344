"""What the commands of both servers have in common."""

import argparse

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000  # openpi-client's port


def make_parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """A parser with the server's address and how long it serves."""
    parser = argparse.ArgumentParser(prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--host", default=DEFAULT_HOST, help="address to listen on; 0.0.0.0: every one of this machine (default: %(default)s)"
    )
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help="0: a free one (default: %(default)s)")
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="leave when standard input closes, so that who started the server cannot outlive it"
    )
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535")
    return int(text)
