"""Catalogs: databases and folders that follow the line files of a crawl, each line in them exactly once.

A catalog reads whole lines of `pages.jsonl` from its position, and stores their rows together with the new position. An
opening of a crawl cuts the line files and writes the same bytes again, so a position remains valid.

    schema.py       the tables and their columns, declared once for all catalogs; the words for states
    fitting.py      values that fit: cut texts, times, numbers of 64 bits
    rows.py         from lines and listed URLs to rows
    line_file.py    the lines of a file after a position, and whether a position belongs to the file
    destination.py  what each catalog does, as a Protocol, and its errors
    address.py      the address of a catalog, with and without its password
    kinds.py        from an address to a catalog
    merging.py      how a row of `urls` changes by a visit and by a list, for all SQL
    sqlite.py       a catalog in SQLite
    postgres.py     a catalog in PostgreSQL, parted by month
    parquet_parts.py  a catalog of Parquet files, in parts named by their lines
    part_stores.py  where these files are: a folder, or a bucket
    following.py    keeps one catalog up to date: lines, then the list of URLs, in bounded steps
    catalog_notes.py  how far each catalog of a crawl is, for `status`
"""

from __future__ import annotations
