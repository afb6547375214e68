"""Replay: a changed function over an archive makes the items of a fresh crawl, each once, after any kill."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import outrider
from fake_web import FakeWeb
from outrider.cli.main import run
from outrider.crawl.orders import archive_replay, replay_process
from outrider.crawl.orders.archive_replay import PARTIAL, replay
from outrider.errors import NamedPathError, SettingsError, StoreInUseError
from outrider.limits import REPLAY_PAGES_AT_ONCE

HOME = "http://one.test/"
COUNT = 5 * REPLAY_PAGES_AT_ONCE
SPIDER = """
import os, signal, time

def items(page):
    yield {"title": page.title, "status": page.status, "type": page.headers.get("content-type"), "n": len(page.body)}
    for link in page.links[:2]:
        yield {"link": link.url, "text": page.text[:20], "outcome": str(page.outcome), "depth": page.depth}
    yield {"referrer": page.referrer, "follow": len(page.follow), "token": page.lease.token}

def selects(page):
    return {"html": page.html, "title": page.css("title::text").get(), "charset": page.content.charset}

def none(page):
    return None

def raises(page):
    raise ZeroDivisionError("in my own code")

def sometimes(page):
    if page.url.endswith("/7"):
        raise ZeroDivisionError("in my own code")
    print("on standard output")
    return {"url": "mine"}

def exits(page):
    if page.url.endswith("/7"):
        os._exit(1)
    return {"a": 1}

PARENT = os.getppid()

def kills(page):
    # The last page kills the replay twice, each time after a block is in the partial file.
    folder = os.environ["KILLS"]
    if page.url == os.environ["LAST"] and len(os.listdir(folder)) < 2:
        while open(os.environ["PARTIAL"], "rb").read().count(b"# {") < 2:
            time.sleep(0.001)
        open(f"{folder}/{len(os.listdir(folder))}", "w").close()
        os.kill(PARENT, signal.SIGKILL)
        os._exit(1)
    return {"number": int(page.url.rpartition("/")[2] or 0)}
"""


class Shop(FakeWeb):
    pages = {  # noqa: RUF012
        "/robots.txt": b"",
        "/": b"<title>shop</title>" + b"".join(b"<a href=/%d>%d</a> " % (n, n) for n in range(COUNT)),
        "/moved": (301, "/1"),
        **{f"/{n}": b"<title>product %d</title><p>text of %d</p><a href=/moved>x</a>" % (n, n) for n in range(COUNT)},
        "/9": b"<title>product 8</title><p>text of 8</p><a href=/moved>x</a>",
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a spider, and a crawl without a function."""
    place = tmp_path_factory.mktemp("replay")
    (place / "shop_spider_5127.py").write_text(SPIDER)
    (place / "hosts").write_text("127.0.0.1 one.test\n")
    sys.path.insert(0, str(place))
    crawl(place, "shop")
    yield place
    sys.path.remove(str(place))


def crawl(place, name, **more):
    told = {"hosts": str(place / "hosts"), "downloader": Shop, "delay": 0, "delay_factor": 0, "max_pages": None} | more
    outrider.crawl([HOME], output=place / name, **told)


def items(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_token(found):
    return sorted(json.dumps({k: v for k, v in one.items() if k not in ("token", "page_token")}) for one in found)


def replayed(directory, function, to=None, **more):
    talk = io.StringIO()
    done = replay(str(directory), f"shop_spider_5127:{function}", str(to) if to else None, talk, **more)
    return done, talk.getvalue()


def test_the_items_are_those_of_a_fresh_crawl(place):
    crawl(place, "fresh", on_page="shop_spider_5127:items")
    before = {name: (place / "shop" / name).read_bytes() for name in ("pages.jsonl", "items.jsonl")}
    done, talk = replayed(place / "shop", "items")
    fresh, again = items(place / "fresh" / "items.jsonl"), items(place / "shop" / "replayed.jsonl")
    assert without_token(fresh) == without_token(again)
    assert (len(fresh), 0, COUNT + 1) == (done.counts.items, done.exit_code, done.counts.pages)
    assert before == {name: (place / "shop" / name).read_bytes() for name in before}
    assert f"replayed {COUNT + 2} of {COUNT + 2} lines of pages.jsonl, {len(again)} items" in talk
    # A crawl with the function itself writes the same bytes in the same order.
    replayed(place / "fresh", "items")
    assert (place / "fresh" / "items.jsonl").read_bytes() == (place / "fresh" / "replayed.jsonl").read_bytes()


def test_a_function_that_begins_with_a_selector_makes_the_items_of_a_fresh_crawl(place, tmp_path):
    crawl(place, "selected", on_page="shop_spider_5127:selects")
    replayed(place / "shop", "selects", tmp_path / "items.jsonl")
    fresh = items(place / "selected" / "items.jsonl")
    assert COUNT + 1 == len(fresh)
    assert without_token(fresh) == without_token(items(tmp_path / "items.jsonl"))


def test_a_module_that_ends_its_process_is_wrong_usage(place):
    (place / "leaves_at_once_5127.py").write_text("import os\nos._exit(0)\n")
    with pytest.raises(SettingsError, match="ended the process that imports it"):
        replay(str(place / "shop"), "leaves_at_once_5127:f", None, io.StringIO())


def test_after_two_kills_each_item_appears_once(place, tmp_path):
    target = tmp_path / "items.jsonl"
    command = [sys.executable, "-m", "outrider", "replay", str(place / "shop")]
    command += ["--on-page", "shop_spider_5127:kills", "--to", str(target)]
    lines = [json.loads(line)["url"] for line in (place / "shop" / "pages.jsonl").read_text().splitlines()]
    (tmp_path / "kills").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(place), "KILLS": str(tmp_path / "kills")}
    environment |= {"PARTIAL": f"{target}{PARTIAL}", "LAST": next(url for url in reversed(lines) if url[-1].isdigit())}
    codes, said = [], ""
    while len(codes) < 3:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        codes.append(ended.returncode)
        said = ended.stderr
        assert target.exists() is (len(codes) == 3)
    assert [-signal.SIGKILL, -signal.SIGKILL, 0] == codes, said
    assert "continues after" in said
    found = [one["number"] for one in items(target) if one["url"] != HOME]
    assert list(range(COUNT)) == sorted(found)
    urls = {one["url"] for one in items(target)}
    assert [url for url in lines if url in urls] == [one["url"] for one in items(target)]
    assert not os.path.exists(f"{target}{PARTIAL}")


@pytest.mark.parametrize("harm", ["cut", "changed", "other function"])
def test_a_damaged_partial_file_or_one_of_another_function_adds_no_wrong_item(place, tmp_path, harm, monkeypatch):
    target = tmp_path / "items.jsonl"
    monkeypatch.setattr(archive_replay, "_finish", lambda file, target: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        replayed(place / "shop", "none" if harm == "other function" else "items", target)
    monkeypatch.undo()
    partial = tmp_path / f"items.jsonl{PARTIAL}"
    content = partial.read_bytes()
    if harm == "cut":
        partial.write_bytes(content[: 2 * len(content) // 3])
    elif harm == "changed":
        middle = content.index(b'"title":"product', len(content) // 2)
        partial.write_bytes(content[:middle] + b'"title":"PRODUCT' + content[middle + 16 :])
    done, _ = replayed(place / "shop", "items", target)
    whole = tmp_path / "whole.jsonl"
    replayed(place / "shop", "items", whole)
    assert whole.read_bytes() == target.read_bytes()
    assert (harm == "other function") == (done.continued_at == 0)


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize("function", ["sometimes", "exits"])
def test_a_page_whose_function_fails_is_named_and_other_pages_have_their_items(
    place, tmp_path, function, forks, monkeypatch
):
    monkeypatch.setattr(replay_process, "_may_fork", lambda: forks)
    done, talk = replayed(place / "shop", function, tmp_path / "x.jsonl")
    assert (COUNT + 1, COUNT, 1, 0) == (done.counts.pages, done.counts.items, done.counts.failed, done.exit_code)
    assert f"{HOME}7" in talk
    if function == "sometimes":
        assert "ZeroDivisionError: in my own code" in talk
        found = items(tmp_path / "x.jsonl")
        assert ({"mine"}, COUNT) == ({one["url"] for one in found}, len({one["page_url"] for one in found}))


def test_a_replay_whose_function_fails_on_most_pages_ends_with_10(place, tmp_path, capsys):
    words = ["replay", str(place / "shop"), "--on-page", "shop_spider_5127:raises", "--to", str(tmp_path / "x.jsonl")]
    assert 10 == run(words)
    said = capsys.readouterr()
    assert f"on_page failed on {COUNT + 1:,} of {COUNT + 1:,} pages" in said.out
    assert 20 == said.err.count("failed for")


@pytest.mark.parametrize("form", [".csv", ".parquet"])
def test_the_target_of_a_replay_may_be_a_table(place, tmp_path, form):
    replayed(place / "shop", "items", tmp_path / f"x{form}")
    if form == ".csv":
        head = (tmp_path / "x.csv").read_text().splitlines()[0]
        assert {"url", "title", "link", "n"} <= set(head.split(","))
        return
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert ("int64", "string") == (str(table.schema.field("n").type), str(table.schema.field("title").type))


def test_a_damaged_or_missing_record_is_named_and_counted(place, tmp_path):
    shutil.copytree(place / "shop", tmp_path / "shop")
    (archive,) = (tmp_path / "shop" / "archive").iterdir()
    places = {one["url"]: one["warc"] for one in items(tmp_path / "shop" / "pages.jsonl")}
    content = bytearray(archive.read_bytes())
    at = places[f"{HOME}20"]["offset"]
    content[at : at + 40] = bytes(40)
    archive.write_bytes(content)
    done, talk = replayed(tmp_path / "shop", "items")
    assert (1, 5, COUNT) == (done.counts.damaged, done.exit_code, done.counts.pages)
    assert f"{HOME}20" in talk
    assert "outrider verify" in "".join(archive_replay.lines_of(done, str(tmp_path / "shop")))
    archive.unlink()
    done, talk = replayed(tmp_path / "shop", "items")
    assert (0, COUNT + 1, 5) == (done.counts.pages, done.counts.damaged, done.exit_code)
    assert archive.name in talk


def test_a_crawl_without_an_archive_is_refused_with_the_reason(place, tmp_path):
    crawl(place, "bare", warc=False)
    with pytest.raises(NamedPathError, match="--no-warc"):
        replayed(place / "bare", "items")


@pytest.mark.parametrize("name", ["items.jsonl", "pages.jsonl", "../shop/items.jsonl"])
def test_a_target_that_the_crawl_writes_is_refused(place, name):
    with pytest.raises(NamedPathError, match="belongs to the crawl"):
        replayed(place / "shop", "items", place / "shop" / name)


def test_two_replays_of_one_target_do_not_mix(place, tmp_path):
    with (
        archive_replay._partial(str(tmp_path / "x.jsonl")),
        pytest.raises(StoreInUseError, match="another replay"),
    ):
        replayed(place / "shop", "items", tmp_path / "x.jsonl")


def test_a_missing_function_is_wrong_usage(place):
    with pytest.raises(SettingsError, match="nosuch"):
        replayed(place / "shop", "nosuch")


def test_a_replay_starts_without_the_modules_that_fetch_or_store():
    code = (
        "import sys, outrider.crawl.orders.archive_replay\n"
        "found = {'asyncio', 'ssl', 'outrider.engine', 'outrider.frontier.machine', 'parsel'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_line_that_is_still_being_written_is_left_out(place, tmp_path):
    shutil.copytree(place / "shop", tmp_path / "shop")
    with (tmp_path / "shop" / "pages.jsonl").open("a") as file:
        file.write('{"url":"http://one.test/torn","status":200')
    done, _ = replayed(tmp_path / "shop", "items")
    assert (COUNT + 1, 0) == (done.counts.pages, done.counts.damaged)


def test_items_are_exported_from_the_pages(place, tmp_path):
    crawl(place, "items", on_page="shop_spider_5127:sometimes")
    assert 0 == run(["export", str(place / "items"), "--what", "items", "--to", str(tmp_path / "x.jsonl")])
    assert items(place / "items" / "items.jsonl") == items(tmp_path / "x.jsonl")
    assert 0 == run(["export", str(place / "items"), "--what", "items", "--to", str(tmp_path / "x.csv")])
    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert ("page_url,token,url", COUNT + 1) == (lines[0], len(lines))
    assert lines[1].endswith(",mine")
