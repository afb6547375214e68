"""The settings of a crawl: where they are set, which values are refused with which message, and that the file reads
back."""

from __future__ import annotations

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.settings import default_shown
from outrider.crawl.setup.options import (
    SETTINGS,
    CrawlOptions,
    as_toml,
    checked,
    default_of,
    from_environment,
    from_file,
    resolved,
)
from outrider.errors import SettingsError


def refusal(**options: object) -> str:
    with pytest.raises(SettingsError) as caught:
        CrawlOptions(**options)
    return caught.value.facts


def test_defaults_are_the_promised_ones():
    options = CrawlOptions()
    found = (options.scope, options.concurrency, options.delay, options.delay_factor, options.contact, options.warc)
    assert ("host", 64, 1.0, 10.0, None, True) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_pages", 0),
        ("max_pages", -1),
        ("max_pages", "1e3"),
        ("max_pages", True),
        ("max_depth", -1),
        ("max_pages_per_host", 0),
        ("max_seconds", 0),
        ("max_seconds", math.nan),
        ("max_seconds", math.inf),
        ("delay", -0.1),
        ("delay", "nan"),
        ("delay", "soon"),
        ("delay", 86_401),
        ("delay_factor", -1),
        ("concurrency", 0),
        ("concurrency", 10_001),
        ("concurrency", 1.5),
        ("scope", "hosts"),
        ("scope", None),
        ("progress", "loud"),
        ("log_format", "xml"),
        ("user_agent", "two words"),
        ("user_agent", ""),
        ("user_agent", "a" * 65),
        ("contact", "nobody"),
        ("contact", "a@b\r\nX-Evil: 1"),
        ("contact", "mé@example.org"),
        ("allow_address", ("127.0.0.1/8",)),
        ("allow_address", ("localhost",)),
        ("include", ("(",)),
        ("exclude", ("(?=x)",)),
        ("seed", -1),
        ("seed", 1 << 64),
        ("warc", "perhaps"),
        ("hosts", "/nowhere/hosts"),
        ("ca", "/nowhere/ca.pem"),
    ],
)
def test_an_invalid_value_is_named_with_its_key_and_the_accepted_values(name, value):
    words = refusal(**{name: value})
    assert words.startswith(name.replace("_", "-"))
    assert f"use {SETTINGS[name].accepted}" in words


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("max_pages", "1_000", 1000),
        ("max_pages", "none", None),
        ("max_depth", 0, 0),
        ("delay", "0", 0.0),
        ("delay_factor", 0, 0.0),
        ("max_seconds", "0.5", 0.5),
        ("warc", "no", False),
        ("contact", "https://example.org/bot", "https://example.org/bot"),
        ("contact", "mailto:me@example.org", "mailto:me@example.org"),
        ("allow_address", ["10.0.0.0/8", "::1"], ("10.0.0.0/8", "::1")),
        ("include", "/a b/", ("/a b/",)),
    ],
)
def test_a_valid_value_is_stored_in_its_own_type(name, value, kept):
    assert kept == getattr(CrawlOptions(**{name: value}), name)


def test_a_file_that_is_not_a_certificate_is_refused(tmp_path):
    (tmp_path / "ca.pem").write_text("hello")
    assert "no certificate" in refusal(ca=tmp_path / "ca.pem")


def test_the_user_agent_contains_the_contact():
    assert "Otter/0.1 (+me@example.org)" == CrawlOptions(user_agent="Otter", contact="me@example.org").user_agent_sent


def test_flags_override_the_environment_the_file_and_the_defaults():
    environment = from_environment({"OUTRIDER_DELAY": "2", "OUTRIDER_MAX_DEPTH": "2", "OUTRIDER_KERNELS": "python"})
    file = from_file("delay = 3\nmax-depth = 3\nconcurrency = 3", "outrider.toml", "/").options
    options = resolved({"delay": "1"}, environment, file, "/tmp/x")
    assert (1.0, 2, 3, 10.0) == (options.delay, options.max_depth, options.concurrency, options.delay_factor)


def test_a_flag_replaces_a_wrong_value_of_a_lower_source():
    file = from_file("delay = 'soon'", "outrider.toml", "/").options
    assert 1.0 == resolved({"delay": 1}, {}, file, "/tmp/x").delay


def test_an_environment_variable_is_named_in_the_error():
    with pytest.raises(SettingsError, match=r"delay \(OUTRIDER_DELAY\) is 'soon'"):
        resolved({}, from_environment({"OUTRIDER_DELAY": "soon"}), {}, "/tmp/x")


def test_lists_in_the_environment_are_separated_by_white_space():
    options = resolved({}, from_environment({"OUTRIDER_EXCLUDE": r"\.pdf$ /print/"}), {}, "/tmp/x")
    assert (r"\.pdf$", "/print/") == options.exclude


def test_values_with_spaces_are_on_lines_of_their_own_in_the_environment():
    told = {
        "OUTRIDER_CREDENTIALS": "https://a.test=Bearer t0ken\n  https://b.test=me:two words \n\n",
        "OUTRIDER_HEADER": "X-Name=two words",
    }
    options = resolved({}, from_environment(told), {}, "/tmp/x")
    assert (("X-Name", "two words"),) == options.header
    assert {"https://a.test/": "Bearer t0ken", "https://b.test/": "me:two words"} == dict(options.credentials)


def test_an_unknown_setting_is_answered_with_the_nearest_one():
    with pytest.raises(SettingsError, match="did you mean max-pages"):
        resolved({"max_page": 1}, {}, {}, "/tmp/x")


@pytest.mark.parametrize("text", ["delay =", "a = " + "[" * 20_000])
def test_a_file_that_is_not_toml_is_named(text):
    with pytest.raises(SettingsError, match=r"x/outrider\.toml is not TOML"):
        from_file(text, "x/outrider.toml", "/")


def test_a_cluster_is_named_by_a_flag_alone():
    for read in (
        lambda: from_environment({"OUTRIDER_CLUSTER": "cluster.toml"}),
        lambda: from_file('cluster = "cluster.toml"', "outrider.toml", "/"),
    ):
        with pytest.raises(SettingsError, match="is not a setting; use the flag --cluster FILE"):
            read()


def test_a_relative_path_in_the_file_starts_at_its_directory(tmp_path):
    (tmp_path / "names").write_text("127.0.0.1 a.test\n")
    file = from_file('hosts = "names"', "outrider.toml", str(tmp_path)).options
    assert str(tmp_path / "names") == resolved({}, {}, file, str(tmp_path)).hosts


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(str.strip)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "max_pages": st.none() | st.integers(1, 1 << 53),
            "max_seconds": st.none() | st.floats(0.001, 1e8),
            "delay": st.floats(0, 86_400),
            "seed": st.integers(0, (1 << 64) - 1),
            "warc": st.booleans(),
            "scope": st.sampled_from(["host", "domain", "prefix", "any"]),
            "allow_address": st.lists(st.ip_addresses().map(str), max_size=3).map(tuple),
            "contact": st.none() | st.from_regex(r"[a-z]{1,9}@[a-z]{1,9}", fullmatch=True),
        },
    ),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=3).map(tuple),
)
def test_settings_written_to_the_file_read_back_unchanged(values, seeds):
    options = CrawlOptions(output="/tmp/x", **values)
    kept = from_file(as_toml(options, seeds), "outrider.toml", "/tmp/x")
    assert (options, seeds) == (resolved({}, {}, kept.options, "/tmp/x"), kept.seeds)


def test_every_setting_is_written_with_its_description():
    text = as_toml(CrawlOptions(), ())
    left_out = {"output", "host"}  # tables are after the keys, if there are any
    kept = {name: setting for name, setting in SETTINGS.items() if name not in left_out and not setting.once}
    assert list(kept) == [name for name in tomllib.loads(text) if name != "seeds"]
    assert all(setting.meaning in text for setting in kept.values())


def test_patterns_with_quotes_and_backslashes_survive_the_file():
    options = CrawlOptions(output="/tmp/x", include=(r'"\d+\\"',))
    kept = from_file(as_toml(options, ()), "outrider.toml", "/tmp/x")
    assert options.include == resolved({}, {}, kept.options, "/tmp/x").include


def test_robots_txt_is_ignored_only_after_two_confirmations_for_the_owners_own_sites():
    assert "--own-sites" in refusal(obey_robots=False)
    assert "scope is any" in refusal(obey_robots=False, own_sites=True, scope="any")
    assert CrawlOptions(obey_robots=False, own_sites=True).frontier_settings()["obey_robots"] is False


def test_each_default_in_the_help_is_what_a_user_types():
    """The text in brackets, typed after the flag, sets the default again."""
    shown = {name: default_shown(name).strip() for name in SETTINGS if not SETTINGS[name].file_only}
    assert "[default: connect=10,first-byte=30,total=60]" == shown["timeout"]
    typed = {name: text.removeprefix("[default: ").removesuffix("]") for name, text in shown.items() if text}
    assert len(typed) > 10
    for name, text in typed.items():
        if text != "none" or SETTINGS[name].optional:
            assert default_of(name) == checked(name, text, SETTINGS[name]), name
        else:
            assert () == default_of(name), name
