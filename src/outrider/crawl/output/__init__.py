"""The output of a crawl: the archive, the line files, and the text for a terminal.

The archive is written first, then the frontier's fact, then the line files. The line files repeat the facts, so a kill
neither loses a line nor writes it twice.

    archive_source.py   files of the archive: here, or in object storage
    archived_answers.py  answers of the archive, with the payload that a revisit names
    cluster_objects.py  the objects of a cluster in object storage
    counter.py          the progress of a command that reads or writes many records
    journal.py          `crawl.log`
    line_fields.py      the fields of a line of `politeness.jsonl`
    object_list.py      `objects.jsonl`: the uploaded files of the archive
    omissions.py        omitted URLs and links, with the command that lists them
    output.py           archive, fact and line files, in this order
    output_frontier.py  the frontier as the output sees it
    output_recovery.py  the ends of archive and line files, for an opening and a repair
    parquet.py          rows of a Parquet file in bounded pieces
    progress.py         the progress of a running crawl
    rates.py            rates, remaining time and counts of the status
    record_heads.py     signed heads of the politeness record
    report.py           the report as one HTML page
    report_log.py       the reports of a worker, and which outcomes its server accepted
    sealed_pages.py     the pages of a cluster, from object storage
    summary.py          the summary at the end
    tabular.py          records as JSON Lines, CSV and Parquet
    terminal.py         text that is safe for a terminal
    token_set.py        a set of tokens in little memory
    worker_folder.py    the directory of a worker: check and repair
    written_lines.py    the lines of `pages.jsonl` and other line files, read again
"""
