"""Extras of the package: the command that installs what one of them adds."""

from __future__ import annotations

import shlex
import sys


def install_command(extra: str) -> str:
    """Returns the command that installs an extra into this environment.

    It names the Python that runs now: Outrider is not on a package index, and only the pip of its own environment
    can tell what its extras add.
    """
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", f"outrider[{extra}]"])
