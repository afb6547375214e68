"""Power cuts on a real file system: ext4 in an image is shut down under a working frontier, and mounted again.

The file systems' own crash tests use FS_IOC_SHUTDOWN: from one moment on nothing more reaches the device. The journal
is written out before, as far as it is complete, or not at all. It needs root and a loop device.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from crash.mounting import ext4, why_not
from crash.rounds import MERGING, Rounds
from model.world import keys_go_to_disk

HOW = {"all is written first": 0, "the journal is written first": 1, "nothing is written first": 2}
"""Flags of FS_IOC_SHUTDOWN."""


def cut_again_and_again(directory: Path, seed: int, how: int, rounds: int, *, merging: bool = False) -> None:
    """merging: counts only cuts in a merge of seen keys, which was under way before the cut and after it."""
    cuts = 0
    with ext4(directory) as disk:
        store = disk.place / "store"
        lives = Rounds(store, directory / "journals", seed, **(MERGING if merging else {}))
        with lives.begun():
            while cuts < rounds:
                assert lives.rounds < 10 * rounds, "few cuts are in a merge"
                disk.mount()

                def end(process: int) -> None:
                    nonlocal cuts
                    (lives.wait_for_merge if merging else lives.wait)()
                    merge, _ = lives.merging()
                    disk.cut(how)
                    cuts += not merging or lives.merging()[0] == merge > 0
                    time.sleep(lives.rng.choice([0, 0.01]))  # now and then it hears of it
                    lives.kill(process)

                code = lives.live(end)
                assert code in (-9, 0, 3), f"seed {seed}: {lives.problems()}"
                disk.unmount()
                disk.mount()
                if (store / "manifest.json").exists():
                    lives.oracle.look(store, lives.rng)
                elif lives.oracle.answered:
                    lives.oracle.problems.append("the store is gone")
                assert [] == lives.problems(), f"seed {seed}, round {lives.rounds}"
                disk.unmount()
        disk.mount()
        lives.oracle.drain(store, lives.rng)
        assert [] == lives.problems(), f"seed {seed}"
        assert lives.oracle.answered > 4 * rounds, "they had time to work"


@pytest.mark.parametrize("how", list(HOW))
def test_answered_calls_survive_a_power_cut_of_a_real_file_system(tmp_path, how):
    cut_again_and_again(tmp_path, seed=HOW[how], how=HOW[how], rounds=3)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("how", list(HOW))
def test_answered_calls_survive_forty_power_cuts_of_a_real_file_system(tmp_path, how):
    cut_again_and_again(tmp_path, seed=10 + HOW[how], how=HOW[how], rounds=40)


def test_answered_calls_survive_a_power_cut_inside_a_merge_of_seen_keys(tmp_path, monkeypatch):
    keys_go_to_disk(monkeypatch)  # also where the judge opens a store
    cut_again_and_again(tmp_path, seed=30, how=HOW["nothing is written first"], rounds=2, merging=True)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("how", list(HOW))
def test_answered_calls_survive_thirty_power_cuts_inside_merges_of_seen_keys(tmp_path, monkeypatch, how):
    """Ten for each kind of power cut."""
    keys_go_to_disk(monkeypatch)
    cut_again_and_again(tmp_path, seed=20 + HOW[how], how=HOW[how], rounds=10, merging=True)


def test_a_file_that_was_not_synced_does_not_survive_such_a_power_cut(tmp_path):
    """The test's own proof: here a power cut does lose something."""
    with ext4(tmp_path) as disk:
        disk.mount()
        synced, unsynced = disk.place / "synced", disk.place / "unsynced"
        descriptor = os.open(synced, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, b"x" * 4096)
        os.fsync(descriptor)
        os.close(descriptor)
        unsynced.write_bytes(b"x" * 4096)
        disk.cut(HOW["nothing is written first"])
        disk.unmount()
        disk.mount()
        assert b"x" * 4096 == synced.read_bytes()
        assert not unsynced.exists() or unsynced.read_bytes() != b"x" * 4096


def test_a_machine_that_cannot_mount_images_gets_the_reason(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root may mount a file system" == why_not(("sh",))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert ("mkfs.nothing is not installed", None) == (why_not(("sh", "mkfs.nothing")), why_not(("sh",)))
    monkeypatch.setattr(Path, "exists", lambda path: False)
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/usr/sbin/{name}")
    assert "there are no loop devices" == why_not(("mkfs.ext4", "losetup"))
