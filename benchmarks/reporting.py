"""How benchmarks print: the machine that they ran on, and whether a target was met, and where they leave rates."""

import os
import platform
from pathlib import Path

from recap_steam import rates


def keep_rates() -> None:
    """Let the rates that are measured from here on be kept for `make plan`."""
    os.environ.setdefault(rates.FOLDER, str(Path(__file__).parent / "rates"))


def machine() -> str:
    """Cores, load and Python version."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} cores (load {load}), Python {platform.python_version()}"


def target(name: str, found: float, limit: float, at_least: bool = False) -> str:
    """One line of a list: what was found, the target (an upper limit, or a lower one with ``at_least``) and whether it was met."""
    met = found >= limit if at_least else found <= limit
    return f"- {name}: {found:.3g}, target {'at least ' if at_least else ''}{limit:g}: {'met' if met else 'MISSED'}"
