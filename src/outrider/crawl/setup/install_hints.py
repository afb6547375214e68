"""Extras of the package: the command that installs what one of them adds."""

from __future__ import annotations

import shlex
import sys


def install_command(extra: str) -> str:
    """The command that installs an extra into this environment.

    It names the Python that runs now: Outrider is on no package index, and only the pip of the environment where it is
    installed knows what its extras add.
    """
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", f"outrider[{extra}]"])
