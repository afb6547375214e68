"""The status codes of gRPC that calls end with, and the errors that name them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from outrider.errors import (
    ClosedError,
    OutriderError,
    SettingsError,
    StoreError,
    StoreFullError,
)
from outrider.service.problems import Problem


class GrpcStatus(IntEnum):
    """The codes that this server uses."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


_PROBLEM_CHARACTERS_MAX: Final = 300  # the trailer with the problem has more


class GrpcError(Exception):
    """Ends a call with a status."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


_PROBLEMS = {
    400: GrpcStatus.INVALID_ARGUMENT,
    401: GrpcStatus.UNAUTHENTICATED,
    403: GrpcStatus.PERMISSION_DENIED,
    404: GrpcStatus.NOT_FOUND,
    409: GrpcStatus.FAILED_PRECONDITION,
    422: GrpcStatus.INVALID_ARGUMENT,
    503: GrpcStatus.UNAVAILABLE,
}
"""The code for a problem, by its status in HTTP."""


def status_of(error: BaseException) -> tuple[GrpcStatus, str]:
    """The status and the message of an error."""
    if isinstance(error, GrpcError):
        return error.status, str(error)
    if isinstance(error, Problem):
        return _PROBLEMS.get(error.status, GrpcStatus.INTERNAL), str(error.detail)[:_PROBLEM_CHARACTERS_MAX]
    if isinstance(error, StoreFullError):
        return GrpcStatus.RESOURCE_EXHAUSTED, str(error)
    if isinstance(error, ClosedError | StoreError):
        return GrpcStatus.UNAVAILABLE, str(error)
    if isinstance(error, SettingsError):
        return GrpcStatus.INVALID_ARGUMENT, str(error)
    if isinstance(error, OutriderError):
        return GrpcStatus.FAILED_PRECONDITION, str(error)
    return GrpcStatus.INTERNAL, f"this is a bug in Outrider ({type(error).__name__})"
