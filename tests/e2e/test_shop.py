"""The spider of examples/shop.py extracts a whole shop: each product once, also where its crawl is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import outrider
from outrider.sim.shop import ShopWeb
from outrider.sim.web import DemoServer


def served(directory, products):
    return DemoServer(lambda port: ShopWeb(products, port=port), directory)


def items_in(directory):
    return [json.loads(line) for line in (directory / "items.jsonl").read_text().splitlines()]


def as_sold(items):
    return sorted(([item["url"], item["name"], item["price"], item["stock"]] for item in items), key=str)


def test_the_spider_extracts_every_product_once(tmp_path, project, monkeypatch):
    monkeypatch.syspath_prepend(project / "examples")
    server = served(tmp_path / "web", 60)
    shop = server.start()
    try:
        told = {"hosts": str(shop.hosts_file), "delay": 0, "delay_factor": 0}
        result = outrider.crawl(list(shop.web.seeds()), output=tmp_path / "out", on_page="shop:on_page", **told)
    finally:
        server.stop()
    assert 0 == result.exit_code
    items = items_in(tmp_path / "out")
    assert as_sold(shop.web.items()) == as_sold(items)
    lines = [json.loads(line) for line in (tmp_path / "out" / "pages.jsonl").read_text().splitlines()]
    by_token = {line["token"]: line for line in lines}
    for item in items:
        page = by_token[item["token"]]
        fields = {name: item[name] for name in ("name", "price", "stock")}
        assert (item["url"], [fields]) == (page["url"], page["items"])


def test_the_docs_show_the_spider(project):
    code = (project / "examples" / "shop.py").read_text().partition("\n\n")[2]
    assert code in (project / "docs" / "hooks.md").read_text()
    assert len([line for line in code.splitlines() if line]) <= 12


@pytest.mark.parametrize("killed_at", [1, 7, 31])
def test_a_spider_that_was_killed_extracts_every_product_once(tmp_path, project, killed_at):
    server = served(tmp_path / "web", 60)
    shop = server.start()
    out = tmp_path / "out"
    command = [sys.executable, "-m", "outrider", "crawl", *shop.web.seeds(), "-o", str(out), "--hosts"]
    command += [str(shop.hosts_file), "--on-page", "shop:on_page", "--delay", "0.005", "--delay-factor", "0"]
    surroundings = {**os.environ, "PYTHONPATH": str(project / "examples")}
    try:
        running = subprocess.Popen(command, env=surroundings, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while time.monotonic() < until and running.poll() is None:
            if (out / "items.jsonl").exists() and len(items_in_part(out)) >= killed_at:
                break
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        running.wait()
        again = [sys.executable, "-m", "outrider", "resume", str(out)]
        assert 0 == subprocess.run(again, env=surroundings, capture_output=True, check=False).returncode
    finally:
        server.stop()
    assert as_sold(shop.web.items()) == as_sold(items_in(out))


def items_in_part(directory):
    return (directory / "items.jsonl").read_bytes().split(b"\n")[:-1]
