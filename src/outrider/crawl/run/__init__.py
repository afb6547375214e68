"""The run of a crawl: lease, fetch, read, report, until no URL is left.

`loop.py` runs the steps in this order, for a frontier in this process or on a server. The event loop sends requests,
threads read the answers, and one thread writes the results.

    bottleneck.py          the causes that limited the speed of the last minute
    concurrency.py         the slots of open requests; a slow request leaves its slot
    copies.py              pages that are copies of other pages
    fetching.py            from a lease to an answer
    folder_copies.py       pages that a site serves under several folders
    hook_failures.py       failures of hooks: counts and messages
    hooks.py               functions of the user
    known_lines.py         line files of earlier runs that are not projections of the frontier
    lease_kinds.py         the kinds of leases, a row each: limits, reading, outcome
    loop.py                the loop
    payloads.py            payloads that are in the archive already
    probes.py              requests for random names, to detect pages that say "not found" with status 200
    reader_page.py         the page that a reader returns, checked and sent between processes
    reader_process.py      readers in processes of their own, with limits of time and memory
    reading.py             threads that read, hash and pack answers
    remote_run.py          a crawl whose frontier is on a server
    settle.py              outcomes made durable, and the next leases, in one thread
    sitemaps.py            sitemaps: found, queued once, read
    spelling_redirects.py  redirects to another spelling of the same URL
    tdm_files.py           tdmrep.json files: queued after robots.txt, kept by site
    text_signature.py      words and numbers of a page, to compare pages without end
    trains.py              how many leases of one host one call takes
    visit.py               the outcome of a visit and its lines
"""
