"""The interface as an OpenAPI 3.1 document, made from the table of paths and the validated types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import NODEFAULT

from outrider.crawl.setup.instants import is_instant
from outrider.crawl.setup.version import version
from outrider.engine.messages import ProblemDetails
from outrider.limits import BEFORE_COUNTED_MAX, SERVICE_KEY_CHARACTERS_MAX
from outrider.service.problems import MEDIA_TYPE, PREFIX, TYPES

if TYPE_CHECKING:
    from outrider.service.routes import Route

_REF: Final = "#/components/schemas/{name}"
_KEY: Final = {"type": "string", "minLength": 1, "maxLength": SERVICE_KEY_CHARACTERS_MAX, "pattern": "^[!-~]*$"}
_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_ALWAYS: Final = ("wrong-host", "cross-origin", "too-many-connections")


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Returns the whole document, as JSON values."""
    routes = tuple(routes)
    types = {one for route in routes for one in (route.body, route.gives) if isinstance(one, type) and _is_struct(one)}
    ordered = sorted({*types, ProblemDetails}, key=lambda one: one.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    looks = [
        route.gives for route in routes if is_dataclass(route.gives) and route.gives.__module__.endswith("journey")
    ]
    _, shown = msgspec.json.schema_components(looks, ref_template=_REF)
    shown = msgspec.json.decode(msgspec.json.encode(shown))  # a default that is a tuple is a list
    components |= {name: _as_sent(one) for name, one in shown.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outrider's frontier", "version": version()},
        "paths": paths,
        "components": {
            "schemas": _with_patterns(components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _as_sent(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an answer: instants as RFC 3339, fingerprints as 16 hex digits."""
    if "properties" not in schema:
        return schema
    properties = dict(schema["properties"])
    for name, one in properties.items():
        if is_instant(name):
            properties[name] = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
        elif name == "fingerprint":
            properties[name] = {"type": "string", "minLength": 16, "maxLength": 16}
        elif name == "before":
            properties[name] = {**one, "description": f"{BEFORE_COUNTED_MAX:,} means {BEFORE_COUNTED_MAX:,} or more"}
    return {**schema, "properties": properties}


def _with_patterns(schema: Any) -> Any:
    """Returns a schema with a pattern for base64, because `contentEncoding` alone is not checked."""
    if isinstance(schema, list):
        return [_with_patterns(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_patterns(one) for name, one in schema.items()}
    return {**found, "pattern": _BASE64} if found.get("contentEncoding") == "base64" else found


def _is_struct(one: type) -> bool:
    return issubclass(one, msgspec.Struct)


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": route.words,
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()} {route.path}").strip("_"),
        "responses": {"200": _answer(route.gives), **_problems(route)},
    }
    names = re.findall(r"{(\w+)}", route.path)
    parameters = [{"name": one, "in": "path", "required": True, "schema": {"type": "string"}} for one in names]
    if route.query is not None:
        parameters += list(_query(route.query))
    if route.idempotent:
        words = "A repeated request with this key gets the first answer; another request with it is refused."
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": _KEY, "description": words})
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        content = {"application/json": {"schema": {"$ref": _REF.format(name=route.body.__name__)}}}
        required = any(one.required for one in msgspec.structs.fields(route.body))
        found["requestBody"] = {"required": required, "content": content}
    if route.role is not None:
        found["security"] = [{"token": []}, {}]
    return found


def _query(query: type[msgspec.Struct]) -> Iterable[dict[str, Any]]:
    for one in msgspec.structs.fields(query):
        schema = dict(msgspec.json.schema(one.type))
        if one.default is not NODEFAULT and one.default is not None:
            schema["default"] = one.default
        yield {"name": one.encode_name, "in": "query", "required": one.required, "schema": schema}


def _answer(gives: Any) -> dict[str, Any]:
    struct = isinstance(gives, type) and _is_struct(gives) and gives.__module__.endswith("messages")
    if struct or (is_dataclass(gives) and gives.__module__.endswith("journey")):
        schema: dict[str, Any] = {"$ref": _REF.format(name=getattr(gives, "__name__", ""))}
    elif isinstance(gives, type) and gives.__name__ == "Text":
        return {"description": "answered", "content": {"text/plain": {"schema": {"type": "string"}}}}
    else:
        schema = {"type": "object"}
    return {"description": "answered", "content": {"application/json": {"schema": schema}}}


def _problems(route: Route) -> dict[str, Any]:
    names = [*route.problems, *_ALWAYS]
    if route.body is not None:
        names += ["malformed-body", "invalid-body", "body-too-large", "media-type", "slow-body", "bodies-full"]
    if route.query is not None or route.idempotent:
        names += ["invalid-query"]
    if route.idempotent:
        names += ["key-reused"]
    if route.role is not None:
        names += ["token-missing", "token-wrong", "role-missing"]
    if route.fetches:
        names += ["crawl-fetches"]
    by_status: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        by_status.setdefault(str(TYPES[name][0]), []).append(PREFIX + name)
    content = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name=ProblemDetails.__name__)}}}
    return {
        status: {"description": ", ".join(types), "content": content} for status, types in sorted(by_status.items())
    }
