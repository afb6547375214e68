"""A worker's folder whose books in `work/` do not match its output: refused without changes, checked, and repaired."""

from __future__ import annotations

import json
import shutil

import pytest

from outrider.cli.main import run
from outrider.crawl.orders.store_repair import repair, verify
from outrider.crawl.questions.politeness_proof import prove, prove_host
from outrider.errors import DamagedStoreError, StoreError
from unit.test_crawl_loop import until
from unit.test_worker import house  # noqa: F401 - a fixture


def content(folder):
    """Returns every file of a folder except its lock, which names its holder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture
def worked(house, tmp_path):  # noqa: F811
    """A worker that was stopped halfway, its house, and an earlier copy of its books."""
    served = house()

    def run_for(pages):
        worker = served.worker(site={"seconds": 0.02, "depth": 9})

        async def stops(_):
            await until(lambda: worker._accepted >= pages)
            worker.stop()

        assert 4 == served.run(worker, stops).exit_code

    run_for(5)
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "ann" / "work", old)
    run_for(5)
    assert served.pages()
    return served, tmp_path / "ann", old


def gone(books, _old):
    shutil.rmtree(books)


def no_reports(books, _old):
    (books / "reports.jsonl").unlink()


def no_name(books, _old):
    (books / "work.json").unlink()


def cut(books, _old):
    path = books / "reports.jsonl"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(books, _old):
    for path in books.iterdir():
        path.write_bytes(b"")


def zeroed(books, _old):
    for path in books.iterdir():
        path.write_bytes(bytes(path.stat().st_size))


def zeroed_reports(books, _old):
    path = books / "reports.jsonl"
    path.write_bytes(bytes(path.stat().st_size))


def older(books, old):
    shutil.rmtree(books)
    shutil.copytree(old, books)


SPOILED = [gone, no_reports, no_name, cut, emptied, zeroed, zeroed_reports, older]


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_worker_whose_books_do_not_match_its_output_is_refused_and_no_file_is_changed(worked, spoil):
    served, folder, old = worked
    spoil(folder / "work", old)
    before = content(folder)
    with pytest.raises(StoreError) as refused:
        served.run(served.worker(site={"depth": 9}))
    assert (5, before) == (refused.value.exit_code, content(folder))


@pytest.mark.parametrize("spoil", SPOILED)
def test_verify_says_that_the_books_do_not_match_the_output(worked, spoil, capsys):
    _, folder, old = worked
    spoil(folder / "work", old)
    if not (folder / "work").exists():
        (folder / "work").mkdir()
    before = content(folder)
    assert (5, before) == (run(["verify", str(folder)]), content(folder))
    told = capsys.readouterr()
    assert "work" in told.out + told.err


def test_verify_and_repair_accept_a_worker_whose_books_are_whole(worked, capsys):
    served, folder, _ = worked
    assert 0 == run(["verify", str(folder), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (True, len(served.pages())) == (told["ok"], told["counts"]["pages"])
    before = content(folder)
    assert (0, before) == (run(["repair", str(folder)]), content(folder))
    assert "nothing is damaged" in capsys.readouterr().out


@pytest.mark.parametrize("spoil", [no_reports, cut, zeroed_reports, older])
def test_repair_writes_the_books_again_and_the_worker_continues_with_all_its_pages(worked, spoil):
    served, folder, old = worked
    before = served.pages()
    spoil(folder / "work", old)
    done = repair(str(folder))
    assert done.losses
    assert (folder / done.folder).is_dir()
    assert verify(str(folder)).ok
    assert 0 == served.run(served.worker(site={"depth": 9})).exit_code
    pages = served.pages()
    assert (before, []) == (pages[: len(before)], [one for one in pages if pages.count(one) > 1])
    assert served.urls()["done"] == len({line["url"] for line in pages})


@pytest.mark.parametrize("spoil", [no_name, zeroed])
def test_repair_needs_the_name_of_the_worker(worked, spoil):
    _, folder, old = worked
    spoil(folder / "work", old)
    before = content(folder)
    with pytest.raises(DamagedStoreError, match="export"):
        repair(str(folder))
    assert before == content(folder)


def test_a_damaged_line_in_the_middle_of_the_reports_is_left_out_and_named(worked):
    served, folder, _ = worked
    path = folder / "work" / "reports.jsonl"
    octets = bytearray(path.read_bytes())
    octets[20] ^= 1
    path.write_bytes(bytes(octets) + b"")
    assert not verify(str(folder)).ok
    assert repair(str(folder)).losses
    assert 0 == served.run(served.worker(site={"depth": 9})).exit_code


@pytest.mark.parametrize(
    "command",
    [
        ("resume", "{ann}"),
        ("crawl", "http://127.0.0.1:9/", "-o", "{ann}"),
        ("serve", "{ann}", "--http", "127.0.0.1:0"),
        ("import", "{ann}", "{list}"),
    ],
)
def test_no_command_makes_a_frontier_in_the_directory_of_a_worker(worked, tmp_path, command, capsys):
    _, folder, _ = worked
    listed = tmp_path / "list.txt"
    listed.write_text("http://127.0.0.1:9/")
    before = content(folder)
    assert 5 == run([word.format(ann=folder, list=listed) for word in command])
    said = capsys.readouterr().err
    assert ("belongs to the worker" in said, f"-o {folder}" in said, "outrider work http" in said) == (True,) * 3
    assert before == content(folder)


def test_the_record_of_a_worker_is_proved_and_an_edited_one_is_not(worked):
    _, folder, _ = worked
    assert 0 == run(["politeness", str(folder)])
    proof = prove(str(folder))
    assert (True, 0, 0) == (proof.ok, proof.broken, proof.unseen)
    assert proof.requests == (folder / "politeness.jsonl").read_bytes().count(b"\n") > 5
    assert [True] * len(proof.hosts) == [
        prove_host(str(folder), host).hosts == {host: proof.hosts[host]} for host in proof.hosts
    ]
    record = folder / "politeness.jsonl"
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[1:]))
    assert (9, {"store"}) == (run(["politeness", str(folder)]), {one.rule for one in prove(str(folder)).violations})
