"""Server reflection: what tools read of the calls and messages of this server."""

from __future__ import annotations

import grpc
import pytest

from grpc_client import Client, serving
from outrider.engine.protobuf import Protocol
from outrider.service.reflection import PATHS
from unit.test_grpc_server import TOKENS, code_of, roles  # noqa: F401 - a fixture

PROTOCOL = Protocol.of("reflection")


def asked(client, *requests, path=PATHS[0]):
    """The answers to requests of one call."""
    call = client.channel.stream_stream(path)
    octets = [PROTOCOL.write("ServerReflectionRequest", request) for request in requests]
    answers = call(iter(octets), timeout=20, metadata=client.metadata)
    return [PROTOCOL.read("ServerReflectionResponse", answer) for answer in answers]


def file_of(client, symbol):
    (answer,) = asked(client, {"file_containing_symbol": symbol})
    (octets,) = answer["file_descriptor_response"]["file_descriptor_proto"]
    return PROTOCOL.read("FileDescriptorProto", octets)


@pytest.mark.parametrize("path", PATHS)
def test_the_services_are_listed_in_both_versions(path):
    with serving() as address:
        (answer,) = asked(Client(address), {"list_services": ""}, path=path)
        names = [one["name"] for one in answer["list_services_response"]["service"]]
        assert {"outrider.v1.Frontier", "urlfrontier.URLFrontier"} < set(names)
        assert answer["original_request"] == {"list_services": ""}


def test_a_symbol_or_a_name_gives_the_file_with_all_calls_and_messages():
    with serving() as address:
        client = Client(address)
        for symbol in ("outrider.v1.Frontier", "outrider.v1.Frontier.Lease", "outrider.v1.Request"):
            file = file_of(client, symbol)
            assert (file["name"], file["package"], file["syntax"]) == ("outrider/v1.proto", "outrider.v1", "proto3")
            (service,) = file["service"]
            lease = {"name": "Lease", "input_type": ".outrider.v1.Request", "output_type": ".outrider.v1.Answer"}
            assert lease in service["method"]
        (by_name,) = asked(client, {"file_by_filename": "outrider/v1.proto"})
        assert by_name["file_descriptor_response"]["file_descriptor_proto"]


def test_fields_have_their_oneofs_maps_enums_and_streams():
    with serving() as address:
        file = file_of(Client(address), "urlfrontier.URLFrontier")
    messages = {one["name"]: one for one in file["message_type"]}
    fields = {one["name"]: one for one in messages["URLItem"]["field"]}
    assert messages["URLItem"]["oneof_decl"] == [{"name": "item"}]
    assert (fields["known"]["oneof_index"], "oneof_index" in fields["ID"]) == (0, False)
    info = messages["URLInfo"]
    (metadata,) = [one for one in info["field"] if one["name"] == "metadata"]
    assert (metadata["label"], metadata["type_name"]) == (3, ".urlfrontier.URLInfo.MetadataEntry")
    assert info["nested_type"][0]["options"] == {"map_entry": True}
    (status,) = [one for one in messages["AckMessage"]["field"] if one["name"] == "status"]
    assert status["type_name"] == ".urlfrontier.AckMessage.Status"
    assert messages["AckMessage"]["enum_type"][0]["value"][0] == {"name": "OK", "number": 0}
    (filtered,) = [one for one in messages["CountUrlParams"]["field"] if one["name"] == "filter"]
    assert filtered["proto3_optional"]
    calls = {one["name"]: one for one in file["service"][0]["method"]}
    assert (calls["PutURLs"]["client_streaming"], calls["PutURLs"]["server_streaming"]) == (True, True)


def test_what_is_not_here_is_answered_and_the_call_goes_on():
    with serving() as address:
        answers = asked(Client(address), {"file_containing_symbol": "no.Such"}, {}, {"list_services": ""})
        assert [answer["error_response"]["error_code"] for answer in answers[:2]] == [5, 5]
        assert "'no.Such' is not here" in answers[0]["error_response"]["error_message"]
        assert answers[2]["list_services_response"]


def test_octets_that_are_no_request_end_the_call():
    with serving() as address:
        call = Client(address).channel.stream_stream(PATHS[0])
        assert code_of(lambda: list(call(iter([b"\x0a\xff"]), timeout=20))) is grpc.StatusCode.INVALID_ARGUMENT


def test_reflection_needs_a_token(roles):  # noqa: F811
    with serving(roles=roles) as address:
        assert code_of(lambda: asked(Client(address), {"list_services": ""})) is grpc.StatusCode.UNAUTHENTICATED
        assert asked(Client(address, token=TOKENS["read"]), {"list_services": ""})
