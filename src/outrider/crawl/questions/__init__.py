"""Questions about a crawl. They change nothing, and work while the crawl runs and after it.

A running crawl answers over `control.sock` or HTTP. If no process owns the directory, its files answer.

    captures.py          captures of pages in archives of any program, for a frontier
    cluster_queries.py   questions and orders to the nodes of a cluster
    cluster_answers.py   the answers of its partitions as one
    cluster_frontier.py  the same questions and orders as methods (`Frontier.connect`)
    cluster_url_orders.py  orders about single URLs, divided among partitions
    cluster_status.py    the counts of all nodes of a cluster
    control.py           `control.sock` of a running crawl
    crawl_queries.py     questions and orders, to a running crawl or to its files
    import_pages.py      lines and archive of a crawl, read for another frontier
    import_urlfrontier.py  items of another URLFrontier, read for a frontier
    manual_requests.py   single requests with the settings of a crawl
    politeness_proof.py  the proof from the record that no delay was violated
    record_proof.py      a part of the politeness record that a stranger can check
    remote_queries.py    questions and orders to a server
    side_server.py       the interface between a crawl and its server
    single_page.py       one page: fetched now, or from the archive
    skipped.py           why a crawl did not follow a link
    skipped_links.py     the list of all links that were not followed
    status.py            the status of a crawl
    watching.py          a view of the status that is drawn again and again
"""
