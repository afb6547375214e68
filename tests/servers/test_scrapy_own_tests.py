"""Scrapy's own tests of schedulers, duplicate filters and the engine, with our classes in place of its own."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("test_scheduler*.py", "test_dupefilters.py", "test_engine*.py")
NO_QUEUE_CLASSES = "the frontier orders requests itself, so SCHEDULER_PRIORITY_QUEUE and its checks are not used"
NO_FILE_OF_ITS_OWN = "the frontier knows the requests of earlier runs; the filter has no file requests.seen"
NO_OLD_NAMES = "it tests the end of names that only Scrapy's own filter had"
STORED_FIRST = (
    "a start request is durable before it is sent, so the engine reads further start requests before the first is sent"
)
EXCEPTIONS = {
    "TestMigration.test_migration": NO_QUEUE_CLASSES,
    "TestIncompatibility.test_incompatibility": NO_QUEUE_CLASSES,
    "TestSchedulerWithDownloaderAwareInMemory.test_logic": "the download slots of one host share the clock of the host",
    "TestSchedulerWithDownloaderAwareOnDisk.test_logic": "the download slots of one host share the clock of the host",
    "test_scheduler_without_crawler": "a scheduler is made by from_crawler alone",
    "TestRFPDupeFilter.test_dupefilter_path": NO_FILE_OF_ITS_OWN,
    "TestRFPDupeFilter.test_seenreq_truncated": NO_FILE_OF_ITS_OWN,
    "TestRFPDupeFilter.test_seenreq_newlines": NO_FILE_OF_ITS_OWN,
    "TestRFPDupeFilter.test_fingerprints_deprecation": NO_OLD_NAMES,
    "TestRFPDupeFilter.test_request_fingerprint_override_deprecation": NO_OLD_NAMES,
    "test_exception_scheduler": "it removes a queue that only Scrapy's own scheduler has",
    "TestRequestSendOrder.test_default": STORED_FIRST,
    "TestRequestSendOrder.test_lifo_start": STORED_FIRST,
    "TestRequestSendOrder.test_shared_queues": STORED_FIRST,
    "TestRequestSendOrder.test_lazy": STORED_FIRST,
}
"""Tests that fail with our classes, and why they do."""
BY_TIME = {name for name, reason in EXCEPTIONS.items() if reason is STORED_FIRST}
"""Exceptions that pass on some runs: what the engine reads depends on the time that a write needs."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("version", "tests_min"), [pytest.param("2.18", 80, marks=pytest.mark.long), ("2.19", 95)])
def test_scrapys_own_tests_pass_with_our_classes(python, tmp_path, version, tests_min):
    source, results = ROOT / "target" / "scrapy" / version, tmp_path / "results.xml"
    files = [str(file) for pattern in FILES for file in sorted((source / "tests").glob(pattern))]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "ours_in_scrapy", "--reactor=asyncio",
         "--timeout=60", f"--junitxml={results}", *files],
        cwd=source, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}, capture_output=True, text=True,
        timeout=250, check=False,
    )  # fmt: skip
    assert results.exists(), done.stdout + done.stderr
    failed, passed = set(), set()
    for case in ElementTree.parse(results).iter("testcase"):
        path = case.get("classname", "").rsplit(".", 1)[-1]
        name = f"{path}.{case.get('name')}" if path.startswith("Test") else case.get("name")
        has_failed = case.find("failure") is not None or case.find("error") is not None
        (failed if has_failed else passed).add(name)
    assert set() == failed - set(EXCEPTIONS), done.stdout
    assert set() == passed & set(EXCEPTIONS) - BY_TIME, "no exceptions any more"
    assert len(failed | passed) >= tests_min
