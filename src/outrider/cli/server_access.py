"""The options for access to a server: a token and trusted certificates."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from outrider.errors import SettingsError

TOKEN_BYTES_MAX = 4_096


def asks_a_server(command: Callable[..., int]) -> Callable[..., int]:
    """Adds `--token-file` and `--ca` to a command, and calls it with `access`."""

    @click.option(
        "--token-file",
        metavar="FILE",
        help="The file with the token of the server.  [default: the variable OUTRIDER_TOKEN]",
    )
    @click.option("--ca", metavar="FILE", help="Certificates to trust at an address with TLS (PEM).  [default: none]")
    @wraps(command)
    def with_access(token_file: str | None, ca: str | None, **words: Any) -> int:
        from outrider.crawl.questions.remote_queries import Access

        return command(access=Access(token_of(token_file), ca), **words)

    return with_access


def token_of(path: str | None) -> str | None:
    """Returns the token of a file, or of the environment. Raises SettingsError. No message contains a token."""
    if path is None:
        return os.environ.get("OUTRIDER_TOKEN") or None
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(TOKEN_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"token-file {path!r} cannot be read; name a file with a token") from None
    if not token:
        raise SettingsError(f"token-file {path!r} is empty; name a file with a token")
    return token
