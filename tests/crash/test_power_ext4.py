"""Power cuts on a real file system: ext4 in an image is shut down under a working frontier, and mounted again.

FS_IOC_SHUTDOWN is what the file systems' own crash tests use: from one moment on nothing more reaches the device, with
the journal written out before, as far as it is, or not at all. It takes root and a loop device.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.rounds import Rounds

FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, u32), Linux
HOW = {"all is written first": 0, "the journal is written first": 1, "nothing is written first": 2}
IMAGE_BYTES = 96 << 20


def why_not(needed: tuple[str, ...] = ("mkfs.ext4", "mount", "umount", "losetup")) -> str | None:
    """What keeps this machine from mounting an image; None when nothing is known to."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "only root may mount a file system"
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [name for name in needed if shutil.which(name, path=places) is None]
    if missing:
        return f"{missing[0]} is not installed"
    if "losetup" in needed and not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    return None


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )


class Ext4:
    """A file system in an image file, which can lose its power."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "ext4.img"
        self.place = directory / "mnt"
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        made = run("mkfs.ext4", "-q", "-F", self.image)
        if made.returncode:
            pytest.skip(f"no ext4 image can be made: {made.stderr.strip()}")

    def mount(self) -> None:
        """Mounts it; ext4 replays its journal."""
        mounted = run("mount", "-o", "loop", self.image, self.place)
        if mounted.returncode:
            pytest.skip(f"the image cannot be mounted: {mounted.stderr.strip()}")

    def unmount(self) -> None:
        for _ in range(100):
            if not os.path.ismount(self.place):
                return
            if run("umount", self.place).returncode:
                time.sleep(0.05)  # somebody's last descriptor is being closed
        raise AssertionError(f"{self.place} stays in use")

    def cut(self, how: int) -> None:
        """The power fails now."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def file_system(directory: Path) -> Iterator[Ext4]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    disk = Ext4(directory)
    try:
        yield disk
    finally:
        disk.unmount()


def cut_again_and_again(directory: Path, seed: int, how: int, rounds: int) -> None:
    with file_system(directory) as disk:
        store = disk.place / "store"
        lives = Rounds(store, directory / "journals", seed)
        with lives.begun():
            for _ in range(rounds):
                disk.mount()
                wait = lives.rng.choice([lives.rng.uniform(0, 0.05), lives.rng.uniform(0.05, 0.5)])

                def end(process: int, wait: float = wait) -> None:
                    time.sleep(wait)
                    disk.cut(how)
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
        assert lives.oracle.answered > 10 * rounds, "they had time to work"


@pytest.mark.parametrize("how", list(HOW))
def test_what_was_answered_survives_a_power_cut_of_a_real_file_system(tmp_path, how):
    cut_again_and_again(tmp_path, seed=HOW[how], how=HOW[how], rounds=3)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("how", list(HOW))
def test_what_was_answered_survives_forty_power_cuts_of_a_real_file_system(tmp_path, how):
    cut_again_and_again(tmp_path, seed=10 + HOW[how], how=HOW[how], rounds=40)


def test_a_file_that_was_not_synced_does_not_survive_such_a_power_cut(tmp_path):
    """The test's own proof: here a power cut does lose something."""
    with file_system(tmp_path) as disk:
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


def test_a_machine_that_cannot_mount_images_is_told_why(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root may mount a file system" == why_not()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "mkfs.nothing is not installed" == why_not(("mkfs.nothing",))
    monkeypatch.setattr(Path, "exists", lambda path: False)
    monkeypatch.setattr(shutil, "which", lambda name, path: f"/usr/sbin/{name}")
    assert "there are no loop devices" == why_not()
