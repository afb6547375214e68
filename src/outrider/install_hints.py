"""Extras of the package: the command that installs what one of them adds."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec

from outrider.errors import SettingsError


def install_command(extra: str) -> str:
    """Returns the command that installs an extra into this environment.

    It names the Python that runs now: Outrider is not on a package index, and only the pip of its own environment
    can tell what its extras add.
    """
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", f"outrider[{extra}]"])


def require_identity_extra() -> None:
    """Raises SettingsError if the extra `identity` is not installed."""
    if find_spec("cryptography") is None:
        raise SettingsError(
            f"signatures need cryptography, which is not installed; run `{install_command('identity')}`"
        )
