"""Outcomes in columns: a report reads the outcomes of its caller once, a column for each field, and checks them.

Numbers are arrays, a row per outcome; texts and answers to errands are mappings from the rows that have a value. A list
of `Outcome` and an `OutcomeBatch` are read by the same checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.errors import SettingsError, shown
from outrider.frontier.format.metadata import metadata_bytes_max, packed
from outrider.frontier.policy.block_detection import NAMELESS
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.arguments import HTTP_STATUS_MAX, INSTANT_MAX, SPAN_SECONDS_MAX, Uint64s
from outrider.journey import OUTCOME_COLUMNS, OUTCOME_FIELDS, Form, Outcome, OutcomeBatch, RobotsAnswer, Verdict
from outrider.limits import CALL_ROWS_MAX, ERROR_TEXT_MAX
from outrider.url import UrlBatch

Value = TypeVar("Value")
Floats = npt.NDArray[np.float64]
Instants = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

DONE, GONE, AGAIN, RETRY = range(4)
"""The verdicts as numbers; from AGAIN on the URL returns to a queue."""
_VERDICTS: Final[Mapping[Verdict, int]] = {
    Verdict.DONE: DONE, Verdict.GONE: GONE, Verdict.AGAIN: AGAIN, Verdict.RETRY: RETRY,
}  # fmt: skip
NO_INSTANT: Final = -1
_NONE_ALONE: Final = {type(None)}
_BOOL_ALONE: Final = {bool}
_NO_TEXTS: Final[Mapping[int, Any]] = MappingProxyType({})


class _FieldColumn(NamedTuple):
    """The values of a field, one per outcome, with the result of `kinds_of`. Without arguments it is a field that no
    outcome sets."""

    values: Sequence[Any] = ()
    kinds: frozenset[type] = frozenset()
    longest: int = 0


_LEFT: Final = _FieldColumn()


class OutcomeColumns:
    """The outcomes of a call. seconds, after_seconds, retry_after_seconds: NaN for none; statuses: 0 for none;
    ended_at, at: instants, NO_INSTANT for none; verdicts: DONE …; answered: whether the site returned an HTTP answer. A
    column of numbers is None if no row has a value."""

    tokens: Uint64s
    verdicts: npt.NDArray[np.uint8]
    all_done: bool
    seconds: Floats
    statuses: npt.NDArray[np.uint16]
    answered: Flags
    links: Mapping[int, Any] = _NO_TEXTS
    at: Instants | None
    metadata: Mapping[int, bytes]
    duplicate: Flags | None
    text_digests: Mapping[int, bytes]

    if TYPE_CHECKING:  # each other field has an attribute of the name of its column (`OUTCOME_COLUMNS`)

        def __getattr__(self, name: str) -> Any: ...

    def __len__(self) -> int:
        return len(self.tokens)

    def rewritten(self) -> list[int]:
        """Returns the rows whose URLs may get another stored text: a digest, validators or metadata."""
        told = self._columns(_KEPT)
        return list(range(len(self))) if len(self) in map(len, told) else sorted(set(chain(*told)))

    def rewritten_most(self) -> int:
        """Returns about the number of rows of `rewritten`, never less."""
        return min(len(self), sum(map(len, self._columns(_KEPT))))

    def needs_bodies(self) -> bool:
        """Whether the texts of some URLs are needed: they change, return to a queue, or are a redirect's base."""
        if self.locations or any(self._columns(_KEPT)):
            return True
        if self.errors and not NAMELESS.isdisjoint(self.errors.values()):
            return True  # such a page may return to its queue, with any verdict
        return not self.all_done and int(self.verdicts.max(initial=0)) >= AGAIN

    def text_bytes(self) -> int:
        """Returns the bytes of all texts and answers."""
        texts = sum(sum(map(len, some.values())) for some in self._columns(_SIZED) if some)
        return texts + (sum(map(_answer_bytes, self.robots.values())) if self.robots else 0)

    def text_bytes_by_row(self) -> npt.NDArray[np.int64]:
        """Returns the bytes of the texts and answers of each row."""
        sizes = np.zeros(len(self), np.int64)
        for texts in self._columns(_SIZED):
            for row, text in texts.items():
                sizes[row] += len(text)
        for row, answer in self.robots.items():
            sizes[row] += _answer_bytes(answer)
        return sizes

    def _columns(self, names: tuple[str, ...]) -> list[Mapping[int, Any]]:
        return [getattr(self, name) for name in names]

    def seconds_of(self, name: str, row: int) -> float | None:
        """Returns the value of a column of seconds in one row."""
        column = getattr(self, name)
        return None if column is None or np.isnan(column[row]) else float(column[row])

    def come_again(self, rows: Sequence[int], at: int) -> None:
        """Returns the URLs of these rows to their queues, without a counted attempt. at: not before this instant,
        NO_INSTANT for at once."""
        self.verdicts = self.verdicts.copy()
        self.verdicts[rows] = AGAIN
        self.at = np.full(len(self), NO_INSTANT) if self.at is None else self.at.copy()
        self.at[rows] = at

    def take(self, rows: npt.NDArray[np.intp]) -> OutcomeColumns:
        """Returns the outcomes of these rows, in this order."""
        found = OutcomeColumns()
        chosen = rows.tolist()
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(found, name, column[rows])
            elif isinstance(column, Mapping):
                setattr(found, name, {place: column[row] for place, row in enumerate(chosen) if row in column})
            else:
                setattr(found, name, column)
        return found

    def without_locations(self, rows: Flags) -> OutcomeColumns:
        """Returns the outcomes without the targets of redirects of these rows: their callers follow redirects."""
        found = OutcomeColumns()
        locations = {row: location for row, location in self.locations.items() if not rows[row]}
        vars(found).update(vars(self), locations=locations)
        return found

    def piece(self, first: int, last: int) -> OutcomeColumns:
        """Returns the rows from `first` on, before `last`."""
        return self if last - first == len(self) else self.take(np.arange(first, last))


def _answer_bytes(answer: RobotsAnswer) -> int:
    return len(answer.body) + len(answer.location or "")


def outcomes_of(given: Iterable[Outcome] | OutcomeBatch) -> OutcomeColumns:
    """Returns the outcomes of a call after all checks of their values. Raises SettingsError with the value."""
    return _of_batch(given) if isinstance(given, OutcomeBatch) else _of_list(given)


def _of_list(given: Iterable[Outcome]) -> OutcomeColumns:
    if isinstance(given, Outcome):
        raise SettingsError("outcomes is one outcome; pass a list: report([lease.done()])")
    given = arguments.listed("outcomes", given)
    _bounded(len(given))
    fields = _fields_of(given)
    found = OutcomeColumns()
    found.tokens = _tokens(fields.get("token", _LEFT))
    _verdicts(found, fields.get("verdict", _LEFT))
    seconds = _numbers("seconds", fields.get("seconds", _LEFT))
    found.seconds = np.full(len(given), np.nan) if seconds is None else seconds
    statuses = _numbers("status", fields.get("status", _LEFT))
    found.statuses = np.zeros(len(given), np.uint16) if statuses is None else statuses
    found.links = _links(fields.get("links", _LEFT))
    return _completed(found, fields)


def _fields_of(given: Sequence[Outcome]) -> dict[str, _FieldColumn]:
    """Returns the values of each field that some outcome sets, in order, and their types. Raises SettingsError for a
    value that is not an outcome."""
    if set(map(type, given)) <= _OUTCOME_ALONE:
        rows = list(map(_astuple, given))
    else:
        for one in given:
            if not isinstance(one, Outcome):
                raise SettingsError(
                    f"{shown(one)} is not an outcome: make one from its lease, as lease.done(seconds=0.2)"
                )
        rows = [_astuple(one if type(one) is Outcome else arguments.plain(one)) for one in given]
    columns = list(zip(*rows, strict=True))
    found: dict[str, _FieldColumn] = {}
    for name, values, told in zip(_FIELDS, columns, kernels.kinds_of(columns), strict=False):
        if told[0] != _NONE_ALONE or name not in _LEFT_OUT:
            found[name] = _field(values, told)
    return found


def _field(values: Sequence[Any], told: tuple[frozenset[type], int] | None = None) -> _FieldColumn:
    """Returns the values of a field as `plain` copies them. told: the result of `kinds_of`, if it is known."""
    told = told or kernels.kinds_of([values])[0]
    if not told[0] <= arguments.PLAIN:
        values = arguments.plain_values(values)
        told = kernels.kinds_of([values])[0]
    return _FieldColumn(values, *told)


_FIELDS: Final = Outcome.__struct_fields__
_LEFT_OUT: Final = {field.name for field in msgspec.structs.fields(Outcome) if field.default is None}
"""The fields that accept None for no value."""
_OUTCOME_ALONE: Final = {Outcome}
_astuple = msgspec.structs.astuple


def _of_batch(given: OutcomeBatch) -> OutcomeColumns:
    found = OutcomeColumns()
    found.tokens = arguments.tokens(given.tokens)
    rows = len(found.tokens)
    _bounded(rows)
    try:
        found.seconds = _column(np.nan if given.seconds is None else given.seconds, rows)
        found.statuses = _statuses(given.statuses, rows)
        words = given.verdicts
        same = Verdict(words) if isinstance(words, str) else None
        verdicts = [Verdict(word) for word in words] if same is None else [same] * rows
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"an OutcomeBatch of {rows} tokens: {error}") from error
    if len(verdicts) != rows:
        raise SettingsError(f"an OutcomeBatch of {rows} tokens has {len(verdicts)} verdicts")
    right = (found.seconds >= 0) & (found.seconds <= SPAN_SECONDS_MAX)
    if np.count_nonzero(right) < rows and not (right | np.isnan(found.seconds)).all():
        raise SettingsError("the seconds of an OutcomeBatch: they must be finite and at least 0, or NaN for none")
    if same is Verdict.DONE:
        found.verdicts, found.all_done = np.zeros(rows, np.uint8), True
    else:
        _verdicts(found, _field(verdicts))
    told = {
        OUTCOME_COLUMNS[name]: _spread(name, column, rows)
        for name, column in given.columns.items()
        if column is not None
    }
    kinds = kernels.kinds_of(list(told.values()))
    return _completed(found, {field: _field(told[field], some) for field, some in zip(told, kinds, strict=True)})


def _spread(name: str, given: Any, rows: int) -> list[Any]:
    """Returns one value per row: from a list, from a mapping of rows, or one value for all rows."""
    if type(given) is not list and isinstance(given, Mapping):
        if not all(type(row) is int and 0 <= row < rows for row in given):
            raise SettingsError(f"{name} of an OutcomeBatch: it must be a mapping of rows from 0 to {rows - 1}")
        return [given.get(row, _DEFAULTS.get(name)) for row in range(rows)]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return [given] * rows
    values = given.tolist() if isinstance(given, np.ndarray) else arguments.listed(name, given)
    if not isinstance(values, list):  # an array without a dimension
        return [values] * rows
    if len(values) != rows:
        raise SettingsError(f"an OutcomeBatch of {rows} tokens has {len(values)} {name}")
    return values


_DEFAULTS: Final = {
    column: Outcome.__struct_defaults__[_FIELDS.index(name) - len(_FIELDS)] for column, name in OUTCOME_COLUMNS.items()
}
"""The value of a row that a mapping leaves out, by column."""


def _completed(found: OutcomeColumns, fields: Mapping[str, _FieldColumn]) -> OutcomeColumns:
    """Reads and checks the fields that most outcomes leave out."""
    found.answered = found.statuses != 0
    if not fields:
        return found
    answered = _numbers("answered", fields.get("answered", _LEFT))
    if answered is not None:
        np.copyto(found.answered, answered == 1, where=answered >= 0)
    for name in _NUMBERS_LEFT_OUT:
        if name in fields:
            setattr(found, OUTCOME_FIELDS[name].column or name, _numbers(name, fields[name]))
    for column, name in _TEXTS.items():
        if name in fields:
            setattr(found, column, _present(name, fields[name]))
    metadata = _present("metadata", fields.get("metadata", _LEFT))
    # Its size is checked once the crawl of each outcome is known (`settling.of_their_kinds`).
    most = metadata_bytes_max(callers=True)
    found.metadata = {row: packed(value, bytes_max=most) for row, value in metadata.items()}
    return found


def _bounded(rows: int) -> None:
    if rows > CALL_ROWS_MAX:
        raise SettingsError(f"{rows} outcomes in one call are too many; split it into calls of at most {CALL_ROWS_MAX}")


def _tokens(given: _FieldColumn) -> Uint64s:
    values = given.values
    for value in values if not given.kinds <= {int} else ():
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise SettingsError(f"token {shown(value)}: it must be the token of a lease, a whole number")
    try:
        return np.fromiter(values, np.int64, len(values)).view(np.uint64)
    except OverflowError:
        raise SettingsError("the outcomes cannot be read: a token is a whole number of at most 63 bits") from None


def _verdicts(found: OutcomeColumns, given: _FieldColumn) -> None:
    values = given.values
    for value in values if not given.kinds <= {Verdict} else ():
        if not isinstance(value, Verdict):
            raise SettingsError(f"verdict {shown(value)}: it must be a Verdict")
    found.verdicts = np.frombuffer(bytes(map(_VERDICTS.__getitem__, values)), np.uint8)
    found.all_done = not np.count_nonzero(found.verdicts)


def _links(given: _FieldColumn) -> dict[int, Any]:
    """Returns the links of each row that has links."""
    values, kinds, _ = given
    for links in values if not kinds <= {tuple, list, UrlBatch} else ():
        if isinstance(links, str | bytes) or not (isinstance(links, Sequence) or hasattr(links, "strings")):
            raise SettingsError(f"links {shown(links)}: they must be a list of links")
    if kinds == {tuple} and not any(values):
        return {}
    own = values if kinds == {UrlBatch} else map(arguments.plain_links, values)
    return {row: links for row, links in enumerate(own) if len(links)}


# -- fields of numbers -------------------------------------------------------------------------------------------------


def _check_seconds(name: str, value: object) -> None:
    if value is not None and not (arguments.is_number(value) and 0 <= value <= SPAN_SECONDS_MAX):
        raise SettingsError(f"{name} {shown(value)}: it must be at least 0, or None")


def _check_instant(name: str, value: object) -> None:
    if value is not None:
        arguments.whole(name, value, 0, INSTANT_MAX)


def _check_flag_or_none(name: str, value: object) -> None:
    if value is not None:
        arguments.flag(name, value)


class _Number:
    """A field of numbers: how one value is checked, and its column. absent: the value of the column for None."""

    def __init__(
        self, check: Callable[[str, object], object], types: Iterable[type], dtype: str, absent: Any, most: float
    ) -> None:
        self.check, self.types = check, {*types, type(None)}
        self.dtype, self.absent, self.most = np.dtype(dtype), absent, most


_SECONDS = _Number(_check_seconds, (int, float), "f8", np.nan, SPAN_SECONDS_MAX)
_INSTANT = _Number(_check_instant, (int,), "i8", NO_INSTANT, INSTANT_MAX)
_FLAG = _Number(arguments.flag, (bool,), "?", False, 1)
_NUMBER_FORMS: Final[Mapping[Form, _Number]] = {
    Form.SECONDS: _SECONDS,
    Form.INSTANT: _INSTANT,
    Form.STATUS: _Number(lambda _, value: arguments.status(value), (int,), "i8", 0, HTTP_STATUS_MAX),
    Form.COUNT: _Number(
        lambda name, value: arguments.whole(name, value, 0, INSTANT_MAX), (int,), "i8", None, INSTANT_MAX
    ),
    Form.FLAG: _FLAG,
    Form.FLAG_OR_NONE: _Number(_check_flag_or_none, (bool,), "i1", -1, 1),
}
_NUMBERS: Final = {
    name: _NUMBER_FORMS[told.form] for name, told in OUTCOME_FIELDS.items() if told.form in _NUMBER_FORMS
}
_NUMBERS_LEFT_OUT: Final = tuple(name for name in OUTCOME_COLUMNS.values() if name in _NUMBERS and name != "answered")
"""The fields of numbers that most outcomes leave out; the other fields are read first."""


def _numbers(name: str, given: _FieldColumn) -> npt.NDArray[Any] | None:
    """Returns the column of a field; None if no row has a value other than the absent one. Raises SettingsError."""
    field, (values, kinds, _) = _NUMBERS[name], given
    if kinds == _NONE_ALONE and field.absent is not None and field is not _FLAG:
        return None
    if not values or (field is _FLAG and kinds == _BOOL_ALONE and not any(values)):
        return None
    nones = type(None) in kinds
    if not kinds <= field.types or (nones and (field.absent is None or field is _FLAG)):
        for value in values:
            field.check(name, value)
    if kinds == _BOOL_ALONE:
        return np.array(values, field.dtype)
    try:
        if field.dtype.kind == "f":
            column = np.array(values, np.float64)  # None becomes NaN
        else:
            column = np.array(
                [field.absent if value is None else value for value in values] if nones else values, field.dtype
            )
        # The absent value is outside of the bounds, or 0; every other value must be inside.
        missing = values.count(None) if nones and field.absent != 0 else 0
        right = int(np.count_nonzero((column >= 0) & (column <= field.most)))
        if column.shape == (len(values),) and right + missing == len(values):
            return column.astype(np.uint16) if name == "status" else column
    except (TypeError, ValueError, OverflowError):
        pass
    for value in values:
        field.check(name, value)
    raise SettingsError(f"the {name} of some outcomes cannot be read")


# -- fields of texts ---------------------------------------------------------------------------------------------------


def _check_octets(name: str, value: object) -> None:
    if not isinstance(value, bytes):
        raise SettingsError(f"{name} {shown(value)}: use bytes")
    arguments.kept(name, value, OUTCOME_FIELDS[name].bytes_max)


def _present(name: str, given: _FieldColumn) -> dict[int, Any]:
    """Returns the values of a field by row, without None, after their checks. Raises SettingsError."""
    values, kinds, longest = given
    if kinds <= _NONE_ALONE:
        return {}
    found = {row: value for row, value in enumerate(values) if value is not None}
    kind, most = _PLAIN.get(name, (type, 0))
    if kinds - _NONE_ALONE == {kind} and 0 <= longest <= most:
        return found
    check = _CHECKS_OF[OUTCOME_FIELDS[name].form]
    for value in found.values():
        check(name, value)
    return found


def _check_error(value: Any) -> None:
    arguments.unicode("error", value)
    arguments.text("error", value, ERROR_TEXT_MAX)


def _columns_with(*forms: Form) -> dict[str, str]:
    return {column: name for column, name in OUTCOME_COLUMNS.items() if OUTCOME_FIELDS[name].form in forms}


_PLAIN: Final = {
    name: (bytes if told.form is Form.OCTETS else str, told.bytes_max)
    for name, told in OUTCOME_FIELDS.items()
    if told.bytes_max
}
"""The type of a text of a field, and its largest number of bytes."""
_CHECKS_OF: Final[Mapping[Form, Callable[[str, Any], object]]] = {
    Form.OCTETS: _check_octets,
    Form.TEXT: lambda name, value: arguments.kept_text(name, value, OUTCOME_FIELDS[name].bytes_max),
    Form.ERROR: lambda _, value: _check_error(value),
    Form.LOCATION: arguments.text,
    Form.METADATA: lambda _, value: packed(value),
    Form.ROBOTS: lambda _, value: arguments.robots(value),
    Form.ADDRESS: lambda _, value: arguments.address(value),
}
_TEXTS: Final = _columns_with(*set(_CHECKS_OF) - {Form.METADATA})
"""The mappings of `OutcomeColumns`, and the field of Outcome that each contains."""
_SIZED: Final = tuple(_columns_with(Form.ERROR, Form.LOCATION, Form.TEXT, Form.OCTETS, Form.METADATA))
"""The mappings whose bytes count."""
_KEPT: Final = tuple(column for column, name in OUTCOME_COLUMNS.items() if OUTCOME_FIELDS[name].kept)
"""The mappings that are stored in the records of URLs."""
for _column_name, _field_name in OUTCOME_COLUMNS.items():  # most calls have few: an absent field costs nothing
    setattr(OutcomeColumns, _column_name, None if _field_name in _NUMBERS else _NO_TEXTS)


# -- columns of an OutcomeBatch ----------------------------------------------------------------------------------------


def _statuses(given: Any, rows: int) -> npt.NDArray[np.uint16]:
    """Returns HTTP statuses of an OutcomeBatch, or 0."""
    if given is None:
        given = 0
    if type(given) is int and 0 <= given <= HTTP_STATUS_MAX:
        return np.full(rows, given, np.uint16)
    statuses = _column(given, rows)
    statuses = np.where(np.isnan(statuses), 0.0, statuses)
    if not ((statuses >= 0) & (statuses <= HTTP_STATUS_MAX) & (statuses % 1 == 0)).all():
        raise SettingsError(f"the statuses of an OutcomeBatch: they must be whole numbers from 0 to {HTTP_STATUS_MAX}")
    return statuses.astype(np.uint16)


def _column(given: Any, rows: int) -> npt.NDArray[np.float64]:
    if isinstance(given, int | float):
        return np.full(rows, given, np.float64)
    column = np.asarray(given, np.float64)
    return column if column.shape == (rows,) else np.broadcast_to(column, (rows,))
