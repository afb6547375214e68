"""How a row of `urls` changes by a visit and by a list: one declaration for the SQL of all databases."""

from __future__ import annotations

from typing import Final

_SET_BY_VISIT: Final = """
    depth = coalesce(urls.depth, {new}.depth),
    source_url_id = coalesce(urls.source_url_id, {source}),
    last_fetched_at = coalesce({new}.last_fetched_at, urls.last_fetched_at),
    fetch_count = urls.fetch_count + {new}.fetch_count,
    last_status_code = CASE WHEN {new}.last_fetched_at IS NULL THEN urls.last_status_code
        ELSE {new}.last_status_code END,
    last_content_hash = coalesce({new}.last_content_hash, urls.last_content_hash),
    last_simhash = coalesce({new}.last_simhash, urls.last_simhash),
    content_length = coalesce({new}.content_length, urls.content_length),
    content_type = coalesce({new}.content_type, urls.content_type),
    state = {new}.state"""
_SET_BY_LIST: Final = """
    depth = excluded.depth,
    source_url_id = coalesce(excluded.source_url_id, urls.source_url_id),
    discovered_at = excluded.discovered_at,
    priority = excluded.priority,
    last_fetched_at = coalesce(urls.last_fetched_at, excluded.last_fetched_at),
    next_fetch_at = excluded.next_fetch_at,
    last_status_code = coalesce(urls.last_status_code, excluded.last_status_code),
    state = excluded.state"""
_OF_THE_LIST: Final = ("state", "priority", "next_fetch_at", "discovered_at", "depth")
_FILLED_BY_LIST: Final = ("last_fetched_at", "source_url_id")


def set_by_visit(new: str, source: str) -> str:
    """Returns the assignments of an UPDATE of `urls`. new: the name of the row with the visit. source: an expression
    for the id of the URL that it was found on."""
    return _SET_BY_VISIT.format(new=new, source=source)


def update_by_list(differs: str) -> str:
    """Returns the end of an INSERT into `urls` after its rows: rows that differ from the list are changed. Results of
    visits stay. differs: the operator of this database for values that differ or of which one is NULL."""
    conditions = [f"urls.{name} {differs} excluded.{name}" for name in _OF_THE_LIST]
    conditions += [f"(urls.{name} IS NULL AND excluded.{name} IS NOT NULL)" for name in _FILLED_BY_LIST]
    return f"ON CONFLICT (url_hash) DO UPDATE SET{_SET_BY_LIST}\n    WHERE {' OR '.join(conditions)}"
