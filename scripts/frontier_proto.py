"""Writes src/outrider/engine/frontier.proto: a call of `outrider.v1.Frontier` for each request of REST that has a name.

python scripts/frontier_proto.py            writes the file of the package that is imported
python scripts/frontier_proto.py --print    prints it
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from engine_file import put

HEAD = """\
// Made by `scripts/frontier_proto.py` of the requests of REST.
//
// Each call carries one request of REST, and has the same JSON document: /openapi.json of a server with --http has
// the schemas. Parameters of a path or a query are members of the document, too. docs/howto/grpc.md has examples.
// A call that is refused has the trailer `outrider-problem-bin`: a problem document of RFC 9457.
syntax = "proto3";

package outrider.v1;

option java_multiple_files = true;

message Request {
  // The document; empty for {}.
  string json = 1;
  // A repeated call with the same key has the answer of the first one; only for calls that take a key.
  string idempotency_key = 2;
}

message Answer {
  // The document.
  string json = 1;
}

service Frontier {
"""


def text() -> str:
    """The whole file."""
    calls = importlib.import_module("outrider.engine.service_calls").CALLS
    routes = importlib.import_module("outrider.service.routes").ROUTES
    named = [(calls[route.method, route.path], route) for route in routes if (route.method, route.path) in calls]
    return HEAD + "\n".join(_call(name, route) for name, route in named) + "}\n"


def _call(name: str, route: Any) -> str:
    types = [one for one in (route.query, route.body) if one is not None]
    takes = [*re.findall(r"{(\w+)}", route.path), *(one.__name__ for one in types)]
    gives = getattr(route.gives, "__name__", "") if not str(route.gives).startswith("dict") else "an object"
    key = " Takes an idempotency key." if route.idempotent else ""
    types_told = f"{', '.join(takes) or 'no parameters'}; answers {gives}"
    told = f"{route.method} {route.path}; {types_told}; role {route.role.name.lower()}.{key}"
    return f"  // {route.words}\n  // {told}\n" + f"  rpc {name}(Request) returns (Answer);\n"


if __name__ == "__main__":
    sys.exit(put("frontier.proto", text(), sys.argv[1:]))
