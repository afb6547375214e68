"""How the methods of a frontier are made: each says it once, above its declaration, and `awaited` gives the same method
to await.

    decision   gives what is to be decided, as a function of (machine, now); a call decides it, and waits for the disk
    glance     looks under the lock, and takes little time
    lengthy    may take long, and locks when it has to
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from outrider.engine.calls import Verb

if TYPE_CHECKING:
    from outrider.engine.awaited import AsyncFrontier
    from outrider.engine.owner import Frontier

Answer = TypeVar("Answer")
Given = ParamSpec("Given")
Method: TypeAlias = Callable[Concatenate["Frontier", Given], Answer]
Awaited: TypeAlias = Callable[Concatenate["AsyncFrontier", Given], Coroutine[Any, Any, Answer]]


def decision(method: Method[Given, Verb[Answer]]) -> Method[Given, Answer]:
    """Awaited, it is decided on the loop, and waits for the disk in a thread."""
    name = method.__name__
    # A caller gets the answer of the verb.
    method.__annotations__["return"] = method.__annotations__["return"].removeprefix("Verb[").removesuffix("]")

    @wraps(method)
    def call(self: Frontier, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        return self._call(name, method(self, *given, **named))

    async def decided(self: AsyncFrontier, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        return await self._call(name, method(self.sync, *given, **named))

    return _with(decided, call)


def glance(method: Method[Given, Answer]) -> Method[Given, Answer]:
    """Awaited, it is made on the loop."""
    name = method.__name__

    @wraps(method)
    def call(self: Frontier, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        with self._alone():
            return method(self, *given, **named)

    async def on_loop(self: AsyncFrontier, /, *given: Given.args, **named: Given.kwargs) -> Any:
        return getattr(self.sync, name)(*given, **named)

    return _with(on_loop, call)


def lengthy(method: Method[Given, Answer]) -> Method[Given, Answer]:
    """Awaited, it is made in a thread."""
    name = method.__name__

    async def in_thread(self: AsyncFrontier, /, *given: Given.args, **named: Given.kwargs) -> Any:
        return await self._in_thread(partial(getattr(self.sync, name), *given, **named))

    return _with(in_thread, method, ", in a thread")


def awaited(method: Method[Given, Answer], why: str = "") -> Awaited[Given, Answer]:
    """The same method to await, made as its declaration says. why: the end of its docstring."""
    made: Awaited[Given, Answer] = vars(method)["awaited"]
    if why:
        made.__doc__ = f"{made.__doc__}".removesuffix(".") + f": {why}."
    return made


def _with(made: Awaited[Given, Answer], method: Method[Given, Answer], where: str = "") -> Method[Given, Answer]:
    """The method, which knows how it is made to be awaited."""
    wraps(method)(made)
    made.__module__, made.__qualname__ = "outrider.engine.awaited", f"AsyncFrontier.{method.__name__}"
    made.__doc__ = f"As `Frontier.{method.__name__}`{where}."
    vars(method)["awaited"] = made
    return method
