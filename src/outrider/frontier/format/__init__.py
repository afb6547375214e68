"""The form of facts and cards: a URL in memory, in the log and on disk.

A URL is a *card*: a head of 72 bytes with numbers, and a body with URL, referrer and metadata. Verbs, kernels, log and
disk exchange cards in columns. Only the code that handles one URL alone unpacks its card into a record. A call
writes its decision as *facts*: blocks of one kind, column by column, in one frame of the log.

    facts.py         the kinds of facts, each declared once: columns, defaults, version, place in a frame; encode,
                     decode
    card_columns.py  cards in columns: chosen, joined, read
    card_records.py  one URL unpacked from its card
    metadata.py      what callers attach to a URL, as JSON
    page_lines.py    the output lines that the frontier completes
    constant.py      columns of one value

The files of this folder do not use the rest of the frontier.
"""
