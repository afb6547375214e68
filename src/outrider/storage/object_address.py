"""The address of object storage: a bucket with a prefix, or a folder. It never contains credentials."""

from __future__ import annotations

import os
import re
from typing import Final

from outrider.errors import SettingsError

S3: Final = "s3://"
FOLDER: Final = "file:"
ACCEPTED: Final = "s3://BUCKET/PREFIX, or file:FOLDER"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]").fullmatch
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.*'()/-]{0,900}").fullmatch


def checked_object_store(text: str) -> str:
    """Returns the address of a store in its usual form. Raises SettingsError; its message has no part that may be a
    secret."""
    text = text.strip()
    if text.startswith(FOLDER) and text.removeprefix(FOLDER).strip() and "\0" not in text:
        return FOLDER + os.path.abspath(os.path.expanduser(text.removeprefix(FOLDER).strip()))
    if not text.startswith(S3):
        raise SettingsError(f"it is not the address of a store; use {ACCEPTED}")
    bucket, _, prefix = text.removeprefix(S3).partition("/")
    if "@" in bucket or "?" in text or "#" in text:
        raise SettingsError(
            f"it has more than bucket and prefix; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and use {ACCEPTED}"
        )
    if not _BUCKET(bucket) or not _PREFIX(prefix) or ".." in prefix:
        raise SettingsError(
            f"its bucket needs 3 to 63 of a-z, 0-9, dot and dash, its prefix plain letters; use {ACCEPTED}"
        )
    prefix = "/".join(part for part in prefix.split("/") if part)
    return f"{S3}{bucket}/{prefix}" if prefix else S3 + bucket


def key_in(address: str, name: str) -> str:
    """Returns the whole key of an object in its bucket, or its path in a folder."""
    if address.startswith(FOLDER):
        return os.path.join(address.removeprefix(FOLDER), name)
    prefix = address.removeprefix(S3).partition("/")[2]
    return f"{prefix}/{name}" if prefix else name
