"""How the methods of a frontier are made: each declares it once, above its definition, and `awaited` makes the same
method for `await`.

    decision   returns the decision as a function of (machine, now); a call makes it, and waits for the disk
    glance     reads under the lock, and is quick
    lengthy    may need long, and locks when necessary

`served` says that a server answers the method too, and for whom: its path, its body and the method of `RemoteFrontier`
follow from the signature. `scripts/stubs.py` writes them to `derived.py`. A method with a `word` is also a question, or
an order, of other processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from outrider.engine.calls import Verb

if TYPE_CHECKING:
    from outrider.engine.awaited import AsyncFrontier
    from outrider.engine.owner import Frontier
    from outrider.engine.remote import RemoteFrontier

Answer = TypeVar("Answer")
Given = ParamSpec("Given")
Whole = TypeVar("Whole", bound=Callable[..., Any])
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
        if self._needs_slots(name):
            self._read_slots()
        with self._alone():
            return method(self, *given, **named)

    async def on_loop(self: AsyncFrontier, /, *given: Given.args, **named: Given.kwargs) -> Any:
        if self.sync._needs_slots(name):
            await self._read_slots()
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


@dataclass(frozen=True, slots=True)
class ServedVerb:
    """How a server answers a verb, at /api/v1/verbs/NAME.

    role: of a token that may use it. order: it is recorded with its author. fetches: it is for programs that fetch, and
    is refused by a crawl that fetches itself. ends: the leases of its tokens end. word: by which other processes ask
    it over control.sock, and clients at /api/v1/WORD. enriched: a running crawl adds facts to the answer. host_order:
    the word of an order to one host. path: an older path below /api/v1/. takes, gives: types of `messages` or `journey`
    for the word or the older path."""

    role: str
    order: bool = False
    fetches: bool = False
    ends: bool = False
    word: str = ""
    enriched: bool = False
    host_order: str = ""
    path: str = ""
    takes: str = ""
    gives: str = ""

    def __call__(self, method: Whole) -> Whole:
        """Declares it of a method."""
        vars(method)["served"] = self
        return method


served = ServedVerb


def served_of(cls: type[Frontier]) -> dict[str, tuple[ServedVerb, Callable[..., Any]]]:
    """Each verb that a server answers, by name: its declaration and its method."""
    methods = ((name, method) for name, method in vars(cls).items() if "served" in getattr(method, "__dict__", ()))
    return {name: (vars(method)["served"], method) for name, method in methods}


def asked(method: Method[Given, Answer]) -> Callable[Concatenate[RemoteFrontier, Given], Answer]:
    """Returns the same method for a server."""
    name, signature = method.__name__, inspect.signature(method)

    @wraps(method)
    def ask(self: RemoteFrontier, /, *given: Given.args, **named: Given.kwargs) -> Any:
        bound = signature.bind(self, *given, **named).arguments
        return self._verb(method, dict(list(bound.items())[1:]))

    ask.__module__, ask.__qualname__ = "outrider.engine.remote", f"RemoteFrontier.{name}"
    ask.__doc__ = f"As `Frontier.{name}`."
    return ask


def filled(name: str, keywords: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keywords of a call, and the defaults of the others. Raises TypeError for an unknown one."""
    found = {**keywords, **named}
    if len(found) > len(keywords):
        raise TypeError(
            f"{name}() got an unexpected keyword argument {next(one for one in named if one not in keywords)!r}"
        )
    return found


def like(
    method: Callable[Concatenate[Any, Given], Answer],
) -> Callable[[Callable[..., Answer]], Callable[Concatenate[Any, Given], Answer]]:
    """Makes a method that passes its keywords on have the signature of another."""

    def alike(own: Callable[..., Answer]) -> Callable[Concatenate[Any, Given], Answer]:
        vars(own)["__signature__"] = inspect.signature(method)
        return own

    return alike


def like_awaited(
    method: Callable[Concatenate[Any, Given], Answer],
) -> Callable[
    [Callable[..., Coroutine[Any, Any, Answer]]], Callable[Concatenate[Any, Given], Coroutine[Any, Any, Answer]]
]:
    """As `like`, for a method to await."""

    def alike(
        own: Callable[..., Coroutine[Any, Any, Answer]],
    ) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Answer]]:
        vars(own)["__signature__"] = inspect.signature(method)
        return own

    return alike


def _with(made: Awaited[Given, Answer], method: Method[Given, Answer], where: str = "") -> Method[Given, Answer]:
    """Returns the method, with a mark of how to make it for `await`."""
    wraps(method)(made)
    made.__module__, made.__qualname__ = "outrider.engine.awaited", f"AsyncFrontier.{method.__name__}"
    made.__doc__ = f"As `Frontier.{method.__name__}`{where}."
    vars(method)["awaited"] = made
    return method
