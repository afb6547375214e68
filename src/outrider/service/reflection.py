"""Server reflection: tools such as grpcurl read the calls and messages of this server from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from outrider.engine.protobuf import Field, Message, Protocol
from outrider.service.grpc_status import GrpcStatus

_NAME: Final = "grpc.reflection.{version}.ServerReflection"
SERVICES: Final = tuple(_NAME.format(version=version) for version in ("v1", "v1alpha"))
PATHS: Final = tuple(f"/{name}/ServerReflectionInfo" for name in SERVICES)
"""The paths of the call: clients that do not know v1 use v1alpha, which has the same messages."""
_OPTIONAL, _REPEATED = 1, 3
_MESSAGE, _ENUM = 11, 14
_TYPES: Final = {"uint64": 4, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}

Descriptor = dict[str, Any]


class Reflection:
    """Answers requests about some .proto files."""

    def __init__(self, protocols: Iterable[Protocol]) -> None:
        self._protocol = Protocol.of("reflection")
        self._files: dict[str, bytes] = {}
        self._file_of: dict[str, str] = {}  # by the names of packages, services, calls and messages
        self._services = [*SERVICES]
        for protocol in protocols:
            name = f"{protocol.package.replace('.', '/')}.proto"
            self._files[name] = self._protocol.write("FileDescriptorProto", _file(name, protocol))
            services = {call.path.split("/")[1] for call in protocol.calls.values()}
            self._services += services
            calls = (call.path[1:].replace("/", ".") for call in protocol.calls.values())
            messages = (f"{protocol.package}.{message}" for message in protocol.messages)
            self._file_of |= dict.fromkeys((*services, *calls, *messages), name)

    def answered(self, message: bytes) -> bytes:
        """Returns the answer to one request. Raises MalformedMessageError."""
        request = self._protocol.read("ServerReflectionRequest", message)
        answer = {"valid_host": request.get("host", ""), "original_request": request, **self._answer(request)}
        return self._protocol.write("ServerReflectionResponse", answer)

    def _answer(self, request: Descriptor) -> Descriptor:
        if "list_services" in request:
            return {"list_services_response": {"service": [{"name": name} for name in sorted(self._services)]}}
        asked = str(request.get("file_by_filename") or request.get("file_containing_symbol") or "")
        file = self._files.get(self._file_of.get(asked, asked))
        if file is None:
            message = f"{asked!r:.200} is not here; list_services lists the services"
            return {"error_response": {"error_code": int(GrpcStatus.NOT_FOUND), "error_message": message}}
        return {"file_descriptor_response": {"file_descriptor_proto": [file]}}


def _file(name: str, protocol: Protocol) -> Descriptor:
    services: dict[str, list[Descriptor]] = {}
    for call in protocol.calls.values():
        service = call.path.split("/")[1].rpartition(".")[2]
        method = {
            "name": call.name,
            "input_type": _full(call.takes, protocol),
            "output_type": _full(call.gives, protocol),
            "client_streaming": call.takes_stream,
            "server_streaming": call.gives_stream,
        }
        services.setdefault(service, []).append(method)
    return {
        "name": name,
        "package": protocol.package,
        "message_type": [_message(one, message, protocol) for one, message in protocol.messages.items()],
        "service": [{"name": service, "method": methods} for service, methods in services.items()],
        "syntax": "proto3",
    }


def _full(name: str, protocol: Protocol) -> str:
    return f".{protocol.package}.{name}"


def _message(name: str, message: Message, protocol: Protocol) -> Descriptor:
    fields = list(message.fields.values())
    # A field with `optional` is alone in a oneof, which follows those of the file.
    choices = list(dict.fromkeys([*message.choices, *filter(None, (_choice_of(one, message) for one in fields))]))
    enums = [
        {"name": enum, "value": [{"name": value, "number": number} for value, number in protocol.enums[enum].items()]}
        for enum in message.enums
    ]
    described = []
    for one in fields:
        field = _field(one, name, protocol)
        if choice := _choice_of(one, message):
            field |= {"oneof_index": choices.index(choice), "proto3_optional": choice not in message.choices}
        described.append(field)
    return {
        "name": name,
        "field": described,
        "nested_type": [_entry(one, name, protocol) for one in fields if one.keyed],
        "enum_type": enums,
        "oneof_decl": [{"name": choice} for choice in choices],
    }


def _choice_of(one: Field, message: Message) -> str:
    """Returns the name of the oneof of a field, "" without one."""
    found = [choice for choice, names in message.choices.items() if one.name in names]
    return found[0] if found else f"_{one.name}" if one.always else ""


def _field(one: Field, outer: str, protocol: Protocol) -> Descriptor:
    if one.keyed:
        kind: Descriptor = {"type": _MESSAGE, "type_name": _full(f"{outer}.{_entry_name(one)}", protocol)}
    else:
        kind = _type(one.kind, outer, protocol)
    label = _REPEATED if one.many or one.keyed else _OPTIONAL
    return {"name": one.name, "number": one.number, "label": label, **kind}


def _type(kind: str, outer: str, protocol: Protocol) -> Descriptor:
    """Returns the type of a field. An enum may be named as it is inside its message, or from outside."""
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if kind in protocol.enums:
        inside = kind if "." in kind else f"{outer}.{kind}"
        return {"type": _ENUM, "type_name": _full(inside, protocol)}
    return {"type": _MESSAGE, "type_name": _full(kind, protocol)}


def _entry_name(one: Field) -> str:
    return "".join(map(str.title, one.name.split("_"))) + "Entry"


def _entry(one: Field, outer: str, protocol: Protocol) -> Descriptor:
    """Returns the message of the entries of a map."""
    key = {"name": "key", "number": 1, "label": _OPTIONAL, "type": _TYPES["string"]}
    value = {"name": "value", "number": 2, "label": _OPTIONAL, **_type(one.kind, outer, protocol)}
    return {"name": _entry_name(one), "field": [key, value], "options": {"map_entry": True}}
