"""Orders to a crawl that does not run: export, import, replay, repair, a fresh start, and retries after our own faults.

Orders to a running crawl, such as a pause or new URLs, are sent like questions (`questions/crawl_queries.py`).

    archive_export.py  `export` of the archive, as CDXJ and WACZ
    archive_uploads.py uploads of a running crawl to object storage
    archive_replay.py  `replay`: hooks over the archive, without a request
    catalogs.py        catalogs of a running crawl, and `catalog`
    exchange.py        `export` and `import`
    identity_files.py  `identity`: a key, and the files by which sites verify a crawler
    move_old.py        `--anew`: moves the old content into a folder
    own_faults.py      retries of pages that failed for a fault of our own
    replay_process.py  the processes of a replay
    replayed_pages.py  from archived pages to items, in one of these processes
    store_repair.py    `verify` and `repair`
"""
