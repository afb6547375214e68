"""POST /api/v1/verbs/NAME: for any wrong body the answer is a problem with its type, and the store continues."""

from __future__ import annotations

import inspect
import json

import pytest

from outrider import Frontier
from outrider.engine.verbs import served_of
from outrider.service.access import TokenRoles
from served import API, A, Served

VERBS = sorted(served_of(Frontier))
BAD = [
    None, True, -1, 0, 2**63, 2**70, 1e308, 1.5, "", "\ud800", "a\x00b", "\u009b\u202e", "x" * 70_000, [], {}, [None],
    [[[]]], ["\ud800"], {"\ud800": 1}, [2**70], {"a": {"b": {}}}, [-1], [1.5], [A, A], {A: "x"}, "2026-01-01",
]  # fmt: skip
TEXTS = [b"", b"{", b"[]", b"null", b'"x"', b"NaN", b'{"x":NaN}', b"{}" * 2, b"\xff", b"[" * 5_000, b'{"a":1,"a":2}']


def arguments(name):
    return [one for one in inspect.signature(getattr(Frontier, name)).parameters if one != "self"]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    served = Served(directory=tmp_path_factory.mktemp("served"))
    served.add(A, A + "2", "http://b.com/")
    served.next()
    return served


@pytest.mark.parametrize("name", VERBS)
def test_no_body_of_a_verb_stops_the_store_or_is_answered_with_a_bug(house, name):
    bodies = [
        *TEXTS,
        *(json.dumps(one).encode() for one in BAD),
        b'{"self":1}',
        b'{"__class__":1,"who":2,"order":3,"at":4}',
    ]
    for argument in arguments(name):
        bodies += [json.dumps({argument: one}).encode() for one in BAD]
        bodies += [b'{"%b":NaN}' % argument.encode(), b'{"%b":1e999}' % argument.encode()]
    wrong = []
    for body in bodies:
        status, _, told = house.ask("POST", f"{API}/verbs/{name}", body, headers={"content-type": "application/json"})
        if status >= 500 or (status != 200 and "type" not in told):
            wrong.append((body[:60], status, told))
    assert [] == wrong
    assert house.frontier.verify().ok


@pytest.mark.parametrize("name", ["close", "checkpoint", "records", "__init__", "_call", "open", "lines"])
def test_a_verb_that_is_not_served_has_no_path(house, name):
    assert name not in VERBS
    assert 404 == house.ask("POST", f"{API}/verbs/{name}", {})[0]


def test_each_verb_requires_the_role_that_it_declares(tmp_path):
    roles = ["read", "work", "operate", "admin"]
    file = tmp_path / "tokens"
    file.write_text("".join(f"{role} {role * 5}\n" for role in roles))
    file.chmod(0o600)
    served, wrong = Served(tokens=TokenRoles.read(str(file))), []
    for name, (declared, _) in served_of(Frontier).items():
        for role in roles:
            headers = {"authorization": f"Bearer {role * 5}", "content-type": "application/json"}
            status = served.ask("POST", f"{API}/verbs/{name}", b"[", headers=headers)[0]
            if (status == 403) != (roles.index(role) < roles.index(declared.role)):
                wrong.append((name, role, status))
        assert 401 == served.ask("POST", f"{API}/verbs/{name}", b"{}")[0]
    assert [] == wrong
