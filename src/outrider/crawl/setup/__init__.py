"""The start of a crawl: its settings, its seeds and its directory.

Everything here is read before the first request. The other rooms import this one; it imports no other room.

    credentials.py     credentials of one origin
    descriptors.py     how many files and sockets the process may open
    directory.py       the directory of a crawl: check, settings, pending seeds
    group_settings.py  groups of hosts, from words and files
    host_settings.py   settings of single hosts, from `[[host]]` tables
    instants.py        instants in answers, as RFC 3339
    keywords.py        the options as typed keywords; made by scripts/keywords.py
    options.py         the options of a crawl, a row each
    permission.py      the addresses that added URLs may name
    request_signer.py  the signer of requests, from the settings and the identity
    seeds.py           seeds from arguments, files and standard input
    version.py         the release, for sites and people
"""
