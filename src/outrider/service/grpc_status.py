"""The status codes of gRPC that calls end with, and the errors that name them."""

from __future__ import annotations

from enum import IntEnum

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


class GrpcError(Exception):
    """Ends a call with a status."""

    def __init__(self, status: GrpcStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


_PROBLEMS = {
    "token-missing": GrpcStatus.UNAUTHENTICATED,
    "token-wrong": GrpcStatus.UNAUTHENTICATED,
    "role-missing": GrpcStatus.PERMISSION_DENIED,
}


def status_of(error: BaseException) -> tuple[GrpcStatus, str]:
    """The status and the message of an error."""
    if isinstance(error, GrpcError):
        return error.status, str(error)
    if isinstance(error, Problem):
        return _PROBLEMS.get(error.name, GrpcStatus.INTERNAL), str(error.detail)
    if isinstance(error, StoreFullError):
        return GrpcStatus.RESOURCE_EXHAUSTED, str(error)
    if isinstance(error, ClosedError | StoreError):
        return GrpcStatus.UNAVAILABLE, str(error)
    if isinstance(error, SettingsError):
        return GrpcStatus.INVALID_ARGUMENT, str(error)
    if isinstance(error, OutriderError):
        return GrpcStatus.FAILED_PRECONDITION, str(error)
    return GrpcStatus.INTERNAL, f"this is a bug in Outrider ({type(error).__name__})"
