"""Plain values of a pickle, read opcode by opcode: texts, octets, numbers and their containers.

Nothing is imported, called or constructed. A pickle that needs an object is refused with its name.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, Final

from outrider.limits import JOB_REQUEST_BYTES_MAX, JOB_REQUEST_VALUES_MAX


class RefusedPickleError(ValueError):
    """A pickle has other values than plain ones; its octets end where they should."""


class Octets:
    """Octets from a position on, as a file. A longer value than a request may have raises ValueError."""

    def __init__(self, octets: Any, position: int = 0) -> None:
        self._octets, self._position = octets, position

    def read(self, size: int) -> bytes:
        """Returns the next octets, fewer at the end."""
        if size > JOB_REQUEST_BYTES_MAX:
            raise ValueError(f"a value has {size:,} bytes, and {JOB_REQUEST_BYTES_MAX:,} are possible")
        found = bytes(self._octets[self._position : self._position + size])
        self._position += len(found)
        return found

    def readline(self) -> bytes:
        """Returns the octets up to the end of a line."""
        ahead = bytes(self._octets[self._position : self._position + JOB_REQUEST_BYTES_MAX])
        found = ahead[: ahead.find(b"\n") + 1]
        self._position += len(found)
        return found

    def tell(self) -> int:
        """Returns the position."""
        return self._position


_MARK: Final = object()
_CONSTANTS: Final[dict[str, Callable[[], Any]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
_ARGUMENTS: Final = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    }
)
"""The opcodes whose argument is the value."""
_IGNORED: Final = frozenset({"PROTO", "FRAME", "STOP"})


def plain_value(octets: Octets) -> Any:
    """Returns the value of the pickle at a position, which is then after it. Raises RefusedPickleError for a pickle
    with anything but plain values, and ValueError for octets that are not a pickle."""
    machine, refused = _PickleMachine(), ""
    for opcode, argument, _ in pickletools.genops(octets):  # type: ignore[arg-type]  # what it uses of a file
        if refused:  # only its end is of interest
            continue
        try:
            machine.take(opcode.name, argument)
        except RefusedPickleError as error:
            refused = str(error)
        except (IndexError, KeyError, TypeError, AttributeError) as error:
            refused = f"it is malformed ({type(error).__name__} at {opcode.name})"
    if not refused and len(machine.stack) != 1:
        refused = "it is malformed (it has not exactly one value)"
    if refused:
        raise RefusedPickleError(refused)
    _check_size(machine.stack[0])
    return machine.stack[0]


class _PickleMachine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def take(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in _ARGUMENTS:
            stack.append(argument)
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            self._memo[len(self._memo) if argument is None else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name == "FROZENSET":
            stack.append(frozenset(self._since_mark()))
        elif name in ("APPEND", "APPENDS"):
            values = [stack.pop()] if name == "APPEND" else self._since_mark()
            list.extend(stack[-1], values)
        elif name == "ADDITEMS":
            values = self._since_mark()
            set.update(stack[-1], values)
        elif name in ("SETITEM", "SETITEMS"):
            values = [stack.pop(-2), stack.pop()] if name == "SETITEM" else self._since_mark()
            dict.update(stack[-1], zip(values[::2], values[1::2], strict=True))
        elif name not in _IGNORED:
            raise RefusedPickleError(self._reason(name, argument))

    def _since_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _reason(self, name: str, argument: Any) -> str:
        if name == "STACK_GLOBAL":
            argument = " ".join(str(part) for part in self.stack[-2:])
        if name in ("GLOBAL", "STACK_GLOBAL"):
            return f"it needs {str(argument).replace(' ', '.')!r:.200}, and only plain values are read"
        return f"it needs the opcode {name}, and only plain values are read"


def _check_size(value: Any) -> None:
    """Raises RefusedPickleError for a value that is much larger than its pickle: parts of it can be used many times."""
    pending, values, size = [value], 0, 0
    while pending:
        one = pending.pop()
        values += 1
        if isinstance(one, (str, bytes)):
            size += len(one)
        elif isinstance(one, dict):
            pending += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            pending += one
        elif one is _MARK:
            raise RefusedPickleError("it is malformed (a mark is a value)")
        if values + len(pending) > JOB_REQUEST_VALUES_MAX or size > JOB_REQUEST_BYTES_MAX:
            raise RefusedPickleError(
                f"it has more than {JOB_REQUEST_VALUES_MAX:,} values or {JOB_REQUEST_BYTES_MAX:,} bytes"
            )
