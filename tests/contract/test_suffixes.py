"""The contract of the look-up of registrable domains in batches, for the native build and its plain twin.

The judge is `outrider.url.registrable_domain`, which queries a library for one host at a time.
"""

from __future__ import annotations

import numpy as np
import publicsuffixlist
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import WITHOUT_NATIVE, both, native_of
from outrider.kernels.suffixes import NO_DOMAIN, ODD
from outrider.kernels.suffixes import PublicSuffixes as Twin
from outrider.url.keys import _LIST, _list, _rules, registrable_domain

NATIVE = native_of(Twin)
BOTH = both(Twin)
RULES = b"com\nuk\nco.uk\n*.ck\n!www.ck\nd.com\nx.b.c.d.com\nxn--p1ai"
TABLES = {kernel: {} for kernel in (Twin, NATIVE)}

SIGNS = "a b c d x www WWW com Com uk co ck * ! !www *.ck xn--p1ai 1 0x1 1.2.3.4 [ : - _"
LABELS = st.sampled_from([*SIGNS.split(), "", ".", "\x00", " "])
NAMES = st.lists(LABELS, max_size=7).map(".".join)
RULE_LABELS = st.lists(st.sampled_from([*"abc*!", "!a", "ab"]), min_size=1, max_size=4).map(".".join)
LISTED = st.sampled_from(
    sorted({line.lstrip("!*.") for line in _LIST.splitlines() if line.isascii() and line[:1] not in ("", "/")})
)
IDN_LABELS = st.text(st.characters(categories=["Ll", "Lo"], min_codepoint=0xDF), min_size=1, max_size=6)
HOSTS = st.one_of(
    NAMES,
    st.builds(
        str.__add__, st.sampled_from(["", "a.", "www.a.", "A.B.C.D.E.", "xn--bcher-kva.", ".", "!", "*."]), LISTED
    ),
    st.builds(lambda name, end: name + end, LISTED.map(str.upper), st.sampled_from(["", ".", "..", ".1", ":80", ".é"])),
    IDN_LABELS.map(lambda label: f"www.{label}.xn--{label.encode('punycode').decode()}"),
    st.ip_addresses().map(str),
    st.text(st.characters(codec=None), max_size=20),  # half characters too
)


def packaged(kernel, private=True):
    """The packaged list, read once per kernel."""
    tables = TABLES[kernel]
    return tables.setdefault(private, kernel(_rules(private))) if private not in tables else tables[private]


def columns(hosts):
    """Returns an arena of hosts with an unused byte before each, and where each begins and ends."""
    octets = [host.encode("utf-8", "surrogatepass") for host in hosts]
    ends = np.cumsum([1 + len(host) for host in octets], dtype=np.int64)
    lengths = np.array([len(host) for host in octets], np.int64)
    return b"".join(b"/" + host for host in octets), ends - lengths, ends


def domains(kernel, *hosts):
    """The result of each host's span, as text where it begins within it."""
    arena, starts, ends = columns(hosts)
    found = np.frombuffer(kernel.domains(arena, starts, ends), np.int64).tolist()
    return [arena[at:end].decode() if at >= 0 else at for at, end in zip(found, ends.tolist(), strict=True)]


@BOTH
@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("x.a.com", "a.com"),
        ("a.co.uk", "a.co.uk"),
        ("x.a.co.uk.", "a.co.uk."),
        ("x.a.b.ck", "a.b.ck"),
        ("x.www.ck", "www.ck"),
        ("y.x.b.c.d.com", "y.x.b.c.d.com"),
        ("y.b.c.d.com", "c.d.com"),
        ("X.A.CO.UK", "A.CO.UK"),
        ("a.b.unlisted", "b.unlisted"),
        ("a.b.xn--p1ai", "b.xn--p1ai"),
        ("a.xn--p1ai.xn--bcher-kva", "xn--p1ai.xn--bcher-kva"),
        ("1.2.com", "2.com"),
        ("a.com1", "a.com1"),
    ],
)
def test_a_domain_is_found_where_it_begins(kernel, host, domain):
    assert [domain] == domains(kernel(RULES), host)


@BOTH
@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "..", "com", "com.", "co.uk", "ck", "b.ck", "localhost", "x.b.c.d.com"),
        *("127.0.0.1", "127.0.0.1.", "a.1", "[::1]", "[a.b]", "::1", "a.com:80"),
        *(".a.com", "a..com", "a.com..", "1.2.3.4.."),
    ],
)
def test_suffixes_addresses_and_empty_labels_have_no_domain(kernel, host):
    assert [NO_DOMAIN] == domains(kernel(RULES), host)


@BOTH
def test_hosts_that_are_not_ascii_are_odd(kernel):
    assert [ODD, "b.com", ODD] == domains(kernel(RULES), "a.é.com", "b.com", "\ud800")


@BOTH
def test_no_rules_and_no_hosts_are_good_too(kernel):
    assert (["b.c"], []) == (domains(kernel(b""), "a.b.c"), domains(kernel(b"")))


@BOTH
def test_texts_are_in_lower_case_without_a_last_dot(kernel):
    hosts = ["a.com", "X.A.Com.", "co.uk", "é.com", "a.\ud800.com", "a.com."]
    assert (["a.com", "a.com", None, None, None, "a.com"], [3, 4]) == kernel(RULES).texts(hosts)


@BOTH
def test_texts_are_read_from_any_iterable(kernel):
    assert (["a.com"], []) == kernel(RULES).texts(("x.a.com",))


@BOTH
@pytest.mark.parametrize(("hosts", "why"), [("a.com", "not one string"), (["a.com", b"a.com"], "row 1: .* not bytes")])
def test_a_value_that_is_not_text_is_refused(kernel, hosts, why):
    with pytest.raises(TypeError, match=why):
        kernel(RULES).texts(hosts)


@BOTH
@pytest.mark.parametrize("line", [b"", b"A", b"a b", b"!", b"!.a", b"*.", b".a", b"a..b", b"a.", b"\xc3\xa9", b"a\r"])
def test_a_line_that_is_not_a_rule_is_named(kernel, line):
    with pytest.raises(ValueError, match="line 1 is no rule"):
        kernel(b"com\n" + line + b"\norg")


@BOTH
@pytest.mark.parametrize("span", [(-1, 2), (2, 1), (0, 6)])
def test_a_span_outside_the_arena_is_named(kernel, span):
    starts, ends = (np.array([0, number], np.int64) for number in span)
    with pytest.raises(ValueError, match=rf"row 1: a span from {span[0]} to {span[1]} lies outside 5 bytes"):
        kernel(RULES).domains(b"a.com", starts, ends)


@BOTH
def test_starts_and_ends_must_be_as_many_and_int64(kernel):
    with pytest.raises(ValueError, match="1 starts and 2 ends"):
        kernel(RULES).domains(b"a.com", np.zeros(1, np.int64), np.zeros(2, np.int64))
    with pytest.raises(BufferError):
        kernel(RULES).domains(b"a.com", np.zeros(1, np.int32), np.zeros(1, np.int32))


@BOTH
def test_a_long_host_of_many_labels_is_read_in_linear_time(kernel):
    """Two hundred thousand labels: a pass per label would need minutes."""
    assert ["a.com"] == domains(packaged(kernel), "b." * 200_000 + "a.com")


@BOTH
@pytest.mark.parametrize("private", [True, False])
def test_every_rule_of_the_list_answers_as_for_one_host(kernel, private):
    names = [name.lstrip("!*.") for name in sorted(_list(private)._publicsuffix) if name.isascii()]
    hosts = [start + name for name in names for start in ("", "a.", "b.a.", "c.b.a.")]
    assert len(hosts) > 20_000
    assert ([registrable_domain(host, private) for host in hosts], []) == packaged(kernel, private).texts(hosts)


@BOTH
@given(hosts=st.lists(HOSTS, max_size=5), private=st.booleans())
def test_any_host_has_the_domain_that_the_library_returns(kernel, hosts, private):
    found, odd = packaged(kernel, private).texts(hosts)
    assert [row for row, host in enumerate(hosts) if not host.isascii()] == odd
    expected = [registrable_domain(host, private) if host.isascii() else None for host in hosts]
    assert expected == found
    starts = domains(packaged(kernel, private), *hosts)
    assert expected == [text.removesuffix(".").lower() if isinstance(text, str) else None for text in starts]


@BOTH
@given(rules=st.lists(RULE_LABELS, min_size=1, max_size=8), host=st.lists(RULE_LABELS, min_size=2, max_size=3))
def test_any_rules_mean_what_they_mean_to_the_library(kernel, rules, host):
    name = ".".join(host)
    rules = [rule for rule in rules if not rule.startswith("!.") and rule != "!"]
    library = publicsuffixlist.PublicSuffixList("\n".join(rules), accept_encoded_idn=False)
    assert [library.privatesuffix(name)] == kernel("\n".join(rules).encode()).texts([name])[0]


@WITHOUT_NATIVE
@given(rules=st.lists(RULE_LABELS, max_size=8), hosts=st.lists(st.one_of(HOSTS, RULE_LABELS), max_size=8))
def test_native_and_twin_answer_alike(rules, hosts):
    answers = []
    for kernel in (Twin, NATIVE):
        try:
            table = kernel("\n".join(rules).encode())
        except ValueError as error:
            answers.append(str(error))
        else:
            answers.append((table.domains(*columns(hosts)), table.texts(hosts)))
    assert answers[0] == answers[1]
