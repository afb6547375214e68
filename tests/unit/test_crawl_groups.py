"""Groups as people write them: words, files, and the message for a file that cannot be used."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from outrider.crawl.setup.group_settings import groups_of, machines, read_groups
from outrider.crawl.setup.options import CrawlOptions, as_toml, from_environment, from_file, resolved
from outrider.errors import SettingsError
from outrider.fetch import is_public_address
from outrider.fetch.addresses import special_networks
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.policy.grouping import Grouping, GroupKind, SharedClocks
from outrider.limits import GROUPING_FILE_BYTES_MAX


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "groups.toml"
    path.write_text('[domain]\ngap = 2\n[[group]]\nname = "g"\nhosts = ["a.com"]\n', encoding="utf-8")
    return str(path)


def test_words_and_files_can_be_combined(file):
    found = read_groups(["address", file, "domain"])
    assert found is not None
    assert (GroupKind(1, 2.0), GroupKind(), ["g"]) == (
        found.domain,
        found.address,
        [group.name for group in found.named],
    )


def test_a_crawl_that_may_leave_this_machine_has_by_default_a_clock_per_shared_machine():
    told = {"nothing": (), "none": ("none",), "domain": ("domain",)}
    found = {
        name: CrawlOptions(group=group, contact="me@example.org").frontier_settings()["group"]
        for name, group in told.items()
    }
    assert {"nothing": machines(), "none": None, "domain": Grouping(domain=GroupKind())} == found
    assert GroupKind(2, 0.25) == machines().address


def test_a_crawl_without_a_contact_reaches_no_shared_machine_and_needs_no_clock_for_it():
    assert (None, None) == (CrawlOptions().frontier_settings()["group"], groups_of((), None))


def test_the_word_for_no_group_cannot_be_combined():
    with pytest.raises(SettingsError, match="none cannot be combined with other groups"):
        CrawlOptions(group=("none", "domain"))


def test_an_older_settings_file_without_a_group_has_the_clock_today():
    kept = from_file('contact = "me@example.org"\ngroup = []\n', "outrider.toml", "/elsewhere")
    assert machines() == resolved({}, {}, kept.options, "").frontier_settings()["group"]


@pytest.mark.parametrize("said", ['group = "none"', 'group = ["none"]'])
def test_the_clock_is_switched_off_in_a_file_too(said):
    kept = from_file(f'contact = "me@example.org"\n{said}\n', "outrider.toml", "/elsewhere")
    assert resolved({}, {}, kept.options, "").frontier_settings()["group"] is None


@pytest.mark.parametrize(
    ("address", "clocks"),
    [
        ("93.184.216.34", [("address 93.184.216.34", 2, 0.25)]),
        ("2606:2800:220:1::1", [("address 2606:2800:220:1::1", 2, 0.25)]),
        ("64:ff9b::5db8:d822", [("address 64:ff9b::5db8:d822", 2, 0.25)]),
        *((exempt, []) for exempt in ("127.0.0.1", "10.1.2.3", "192.168.0.9", "::1", "fd00::1", "fe80::1")),
        *((network, []) for network in ("104.16.0.1", "2606:4700::6810:1", "151.101.1.69", "2a04:4e42::1")),
    ],
)
def test_this_machine_private_networks_and_content_delivery_are_exempt(address, clocks):
    assert clocks == list(SharedClocks(machines()).of("www.example.org", address))


def test_the_exempt_networks_are_those_that_are_not_public():
    for network in special_networks():
        assert [False] * 2 == [is_public_address(str(network[place])) for place in (0, -1)], network


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (b"[domain", "is not TOML"),
        (b"\xff", "is not TOML"),
        (b"a = " + b"[" * 20_000, "is not TOML"),
        (b"domain = true", "domain True: write it as a table"),
        (b"#" * (GROUPING_FILE_BYTES_MAX + 1), "is larger than"),
    ],
)
def test_a_fault_of_a_file_is_named_with_the_file(tmp_path, octets, said):
    (tmp_path / "g.toml").write_bytes(octets)
    with pytest.raises(SettingsError, match=f"group is .*g.toml.*{said}"):
        CrawlOptions(group=(str(tmp_path / "g.toml"),))


def test_a_missing_file_is_refused():
    with pytest.raises(SettingsError, match=r"group is .*hosts.*cannot be read.*use domain, address, none, or"):
        CrawlOptions(group=("hosts",))


def test_two_files_that_contradict_each_other_are_refused(file):
    with pytest.raises(SettingsError, match="there twice"):
        CrawlOptions(group=(file, file))


def test_the_settings_file_reads_back(file):
    options = CrawlOptions(group=("domain", file))
    kept = from_file(as_toml(options, ()), "outrider.toml", "/elsewhere")
    assert options.group == resolved({}, {}, kept.options, "").group


def test_a_file_named_in_outrider_toml_is_relative_to_its_directory(tmp_path, file):
    for text in ('group = ["domain", "groups.toml"]', 'group = "groups.toml"'):
        kept = from_file(text, "outrider.toml", str(tmp_path))
        assert file == resolved({}, {}, kept.options, "").group[-1]
    assert ("domain",) == resolved(
        {}, {}, from_file('group = "domain"', "outrider.toml", str(tmp_path)).options, ""
    ).group


def test_the_environment_may_name_several_groups(file):
    given = from_environment({"OUTRIDER_GROUP": f"domain {file}"})
    assert ("domain", file) == resolved({}, given, {}, "").group


def test_the_example_in_the_docs_is_a_valid_file(project):
    text = (project / "docs" / "groups.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    found = Grouping.of(tomllib.loads(example))
    assert found is not None
    assert (2.5, 2, ["shops", "cdn"]) == (
        found.domain and found.domain.gap,
        found.address and found.address.capacity,
        [group.name for group in found.named],
    )
    for settings in re.findall(r"settings=(\{\"group\": [^t].*\})\)", text):
        assert FrontierSettings.of(ast.literal_eval(settings)).group is not None
