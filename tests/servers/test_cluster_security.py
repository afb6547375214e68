"""A cluster on brokers that want TLS and a password: `kafka_settings` in its file, and messages for wrong ones."""

from __future__ import annotations

import subprocess

import pytest

from e2e.crawling import command, environment, lines, web
from servers.kafka import PASSWORD, USER, Kafka

pytestmark = pytest.mark.timeout(300)
GOOD = """
[kafka_settings]
security.protocol = "SASL_SSL"
ssl.ca.location = "{certificate}"
sasl.mechanism = "PLAIN"
sasl.username = "{user}"
sasl.password = "env:KAFKA_PASSWORD"
"""
PAGES = 30


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with Kafka(tmp_path_factory.mktemp("kafka"), 1, secured=True) as running:
        yield running


def file_of(kafka, folder, change=("", "")):
    path = folder / "cluster.toml"
    table = GOOD.format(certificate=kafka.certificate, user=USER).replace(*change)
    text = f'name = "secured"\nkafka = "{kafka.relayed_address}"\nobjects = "file:{folder / "objects"}"\n'
    path.write_text(text + table)
    return path


def run(*words, password=PASSWORD, seconds=60):
    surroundings = {} if password is None else {"KAFKA_PASSWORD": password}
    return subprocess.run(
        command(*words), env=environment(**surroundings), capture_output=True, text=True, timeout=seconds, check=False
    )


def test_a_node_crawls_on_brokers_with_tls_and_a_password(kafka, tmp_path):
    file = file_of(kafka, tmp_path)
    made = run("cluster", "init", file, "--partitions", "2")
    assert 0 == made.returncode, made.stderr
    with web(tmp_path / "web", hosts=2, pages=PAGES, suffix="test") as served:
        words = ["--hosts", served.hosts_file, "--delay", "0", "--delay-factor", "0", "--contact", "ann@example.org"]
        crawl = run("crawl", f"@{served.seeds_file}", "--cluster", file, "-o", tmp_path / "a", *words, seconds=200)
        assert 0 == crawl.returncode, crawl.stderr
        assert len(lines(tmp_path / "a" / "pages.jsonl")) == len(served.web.must_fetch())
    assert PASSWORD not in crawl.stderr + "".join(
        path.read_text(errors="replace") for path in (tmp_path / "a").rglob("*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("change", "password", "code", "named"),
    [
        (("", ""), "wrong", 8, "Invalid username or password"),
        (("", ""), None, 2, "environment variable 'KAFKA_PASSWORD'"),
        (('ssl.ca.location = "{certificate}"', ""), PASSWORD, 8, "certificate verify failed"),
        (("SASL_SSL", "SASLY"), PASSWORD, 2, "security.protocol"),
        (("sasl.username", "sasl.name"), PASSWORD, 2, "sasl.name"),
        (("PLAIN", "SCRAM-SHA-256"), PASSWORD, 8, "supported mechanisms: PLAIN"),
    ],
)
def test_wrong_settings_are_named_with_the_file(kafka, tmp_path, change, password, code, named):
    change = tuple(text.format(certificate=kafka.certificate) for text in change)
    done = run("cluster", "init", file_of(kafka, tmp_path, change), password=password)
    assert (code, True) == (done.returncode, named in done.stderr), done.stderr
    assert "cluster.toml" in done.stderr
    assert "Traceback" not in done.stderr
