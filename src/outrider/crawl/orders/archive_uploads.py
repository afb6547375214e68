"""Uploads of a running crawl: each sealed file of its archive is uploaded, checked and listed, and then may be deleted.

A file is sealed when the log names a later one: an opening cuts only the file that the log names. One thread uploads,
so a store that is out of reach never stops a crawl: the archive stays in the directory, and the next run continues.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable

from outrider.archive.warc import Watermark, file_name, serial_of
from outrider.crawl.output.object_list import ListedObject, ObjectList, new_id
from outrider.crawl.output.output import ARCHIVE_PREFIX
from outrider.crawl.output.output_recovery import archive_end, archive_files
from outrider.crawl.output.summary import counted
from outrider.crawl.setup.directory import ARCHIVE_NAME
from outrider.errors import OutriderError, UnreachableError
from outrider.limits import UPLOAD_END_SECONDS_MAX, UPLOAD_LOOK_SECONDS, UPLOAD_RETRY_SECONDS_MAX
from outrider.storage.object_store import ObjectStore

_JOIN_SECONDS = 2.0
_MARK = "WARC files of a crawl by Outrider, each written once: https://iipc.github.io/warc-specifications/\n"


def check_store(address: str, directory: str, new: str = "") -> tuple[str, str]:
    """Writes a small object with the id of the crawl, before the crawl begins. Returns the id, and in words why the
    store does not answer, "" if it does. new: the id of a crawl without one. Raises SettingsError for a store that
    refuses."""
    identity = ObjectList(directory).id or new or new_id()
    store = ObjectStore(address)
    try:
        store.put_text(f"{identity}.txt", _MARK)
    except UnreachableError as error:
        return identity, str(error)
    return identity, ""


def archive_end_to_upload(directory: str) -> Watermark | None:
    """Returns where the archive of a directory continues: after its last record, or with a new file if the newest one
    is uploaded. None for an empty archive."""
    end, _ = archive_end(directory, None)
    uploaded = [serial_of(ARCHIVE_PREFIX, name) or 0 for name in ObjectList(directory).objects]
    newest = serial_of(ARCHIVE_PREFIX, end[0]) if end is not None else None
    if uploaded and (newest is None or newest <= max(uploaded)):
        return file_name(ARCHIVE_PREFIX, max(uploaded) + 1), 0
    return end


class ArchiveUploads:
    """The uploads of one crawl, by a thread of their own. The methods are called by one other thread."""

    def __init__(
        self,
        address: str,
        directory: str,
        logged: Callable[[], Watermark | None],
        tell: Callable[[str], None],
        *,
        identity: str,
        keep: int | None = None,
    ) -> None:
        """identity: of the crawl, from `check_store`. logged: the durable end of the archive, by the log. tell: called
        by the thread with a sentence about a store that cannot be used. keep: the number of uploaded files that
        stay in the directory; None for all."""
        self._directory, self._logged, self._tell, self._keep = directory, logged, tell, keep
        self._address = address
        self._listed = ObjectList(directory)
        self._identity = self._listed.begin(identity, address)
        self._store: ObjectStore | None = None
        self.problem = ""
        self._ending = threading.Event()
        self._end_at = 0.0
        self._at_once = False
        self._thread = threading.Thread(target=self._run, name="outrider-uploads", daemon=True)

    def start(self) -> None:
        """Starts to upload."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the current file."""
        self._at_once = True
        self._ending.set()

    def finish(self) -> list[str]:
        """Uploads the rest for a limited time. Returns in words what is left. It may be called again."""
        self._end_at = time.monotonic() + UPLOAD_END_SECONDS_MAX
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(UPLOAD_END_SECONDS_MAX + _JOIN_SECONDS)
        left = len(self.waiting())
        if not left:
            return []
        why = f" ({self.problem})" if self.problem else ""
        again = f"`outrider resume {shlex.quote(self._directory)}` continues"
        return [f"{counted(left, 'file')} of the archive not uploaded{why}; {again}"]

    def waiting(self) -> list[str]:
        """The sealed files that are not listed, in order."""
        place = self._logged()
        end = serial_of(ARCHIVE_PREFIX, place[0]) if place is not None else None
        if end is None:
            return []
        numbered = archive_files(self._directory)
        return [name for number, name in numbered if number < end and name not in self._listed.objects]

    def _run(self) -> None:
        pause = UPLOAD_LOOK_SECONDS
        while True:
            is_last = self._ending.is_set()
            try:
                self.upload()
                pause, self.problem = UPLOAD_LOOK_SECONDS, ""
            except (OutriderError, OSError) as error:
                if str(error) != self.problem and not is_last:
                    self._tell(f"outrider: the archive is not uploaded: {error}")
                self.problem = str(error)
                pause = min(2 * pause, UPLOAD_RETRY_SECONDS_MAX)
            if is_last:
                return
            self._ending.wait(pause)

    def upload(self) -> None:
        """Uploads, checks and lists each file that waits, and deletes listed files that need not stay. Raises
        OutriderError, OSError."""
        for name in self.waiting():
            if self._at_once or (self._end_at and time.monotonic() > self._end_at):
                return
            if self._store is None:
                self._store = ObjectStore(self._address)
            path = os.path.join(self._directory, ARCHIVE_NAME, name)
            stored = f"{self._identity}-{name}"
            made = self._store.put_file(stored, path)
            self._listed.add(ListedObject(name, self._address, stored, made.bytes, made.md5 or ""))
            self._delete()
        self._delete()

    def _delete(self) -> None:
        """Deletes the oldest listed files, so that `keep` of them stay."""
        if self._keep is None:
            return
        kept = [name for _, name in archive_files(self._directory) if name in self._listed.objects]
        for name in kept[: max(0, len(kept) - self._keep)]:
            os.unlink(os.path.join(self._directory, ARCHIVE_NAME, name))
