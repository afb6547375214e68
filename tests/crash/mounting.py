"""File systems that a test mounts for itself: ext4 in an image, which can lose its power, and a small tmpfs.

Where the machine forbids it, the test is skipped with the reason.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, u32), Linux
IMAGE_BYTES = 96 << 20
IMAGES_NEED = ("mkfs.ext4", "mount", "umount", "losetup")
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def why_not(needed: tuple[str, ...]) -> str | None:
    """Returns why this machine cannot mount an image with these programs, or None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "only root may mount a file system"
    missing = [name for name in needed if shutil.which(name, path=PLACES) is None]
    if missing:
        return f"{missing[0]} is not installed"
    if "losetup" in needed and not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    return None


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, env={**os.environ, "PATH": PLACES}
    )


def unmount(place: Path) -> None:
    for _ in range(100):
        if not os.path.ismount(place) or not run("umount", place).returncode:
            return
        time.sleep(0.05)  # somebody's last descriptor is being closed
    run("umount", "-l", place)
    raise AssertionError(f"{place} stays in use")


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
        unmount(self.place)

    def cut(self, how: int) -> None:
        """The power fails now."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def ext4(directory: Path) -> Iterator[Ext4]:
    """An ext4 of its own, not mounted yet; afterwards it is gone."""
    reason = why_not(IMAGES_NEED)
    if reason is not None:
        pytest.skip(reason)
    disk = Ext4(directory)
    try:
        yield disk
    finally:
        run("umount", "-l", disk.place)


@contextlib.contextmanager
def tmpfs(directory: Path, megabytes: int) -> Iterator[Path]:
    """A file system in memory with this number of megabytes."""
    reason = why_not(("mount", "umount"))
    if reason is not None:
        pytest.skip(reason)
    place = directory / "tmpfs"
    place.mkdir()
    mounted = run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", place)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        run("umount", "-l", place)


def fill(place: Path) -> Path:
    """Other programs fill the disk to the last byte."""
    filler = place / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    step = 1 << 20
    while step:
        try:
            os.write(descriptor, b"x" * step)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            step //= 2
    os.close(descriptor)
    return filler
