"""Every limit of the house, each with its reason. Units and bounds are in the names."""

from __future__ import annotations

MICROSECONDS = 1_000_000  # an instant is an int of microseconds since 1970
INSTANT_MAX = 1 << 62  # 146,000 years from now, and two of them can be added in 64 bits
TALLY_MAX = (1 << 63) - 1  # a count in the log has 63 bits; one that is there stays there

# URLs and their company
URL_BYTES_MAX = 8_192  # longer ones are traps or data; servers commonly refuse above 8 KiB
REFERRER_BYTES_MAX = URL_BYTES_MAX  # a referrer is a URL; a card has 16 bits for its length
JSON_DEPTH_MAX = 64  # levels of JSON of callers: readers in Python fail near 970, some in other languages beyond 64
METADATA_BYTES_MAX = 16_384  # the metadata that a caller attaches to one URL; memory and log keep it
REAL_MAX = 1e12  # a real number of a record: more than the seconds and the rates that occur
VISITS_MAX = 2**32 - 1  # of one URL; from here on they are not counted
TEXT_DIGEST_BYTES = 8  # of a page's text, without markup, numbers and menus
UNIQUE_METADATA_BYTES_MAX = 1 << 20  # the same in a crawl by unique keys: whole requests of other programs, with bodies
UNIQUE_KEY_BYTES_MAX = 16_384  # a caller's unique key: Crawlee's may contain a URL, a method and a payload
UNIQUE_KEY_SHOWN_MAX = 44  # characters of its base64 in a table: a SHA-256 has 44
WARC_MARK_BYTES = 24  # the date and the id of an archived answer, to which a later 304 refers
VALIDATOR_BYTES_MAX = 8_192  # one ETag or Last-Modified: servers commonly refuse a longer header line
DIGEST_BYTES_MAX = 128  # the digest of one page's content: SHA-512 has 64 bytes, and 128 as hex digits
LINE_BYTES_MAX = 256 << 10  # one outcome's line of output: the fullest page has half of it, each character escaped
WATERMARK_BYTES_MAX = 64 << 10  # the place of an archive writer: a file and a byte; it is kept in memory
WATERMARK_WRITERS_MAX = 256  # archive writers of one store, whose places are kept for ever: a crawl has three
LINKS_PER_PAGE_MAX = 10_000  # URLs; a page of 2 MB can name 100,000, beyond this it is a farm. Some indexes repeat a
# hundred URLs 80,000 times: links that repeat one take no room of these, and have as much again
LINKS_PER_PAGE_BYTES_MAX = (
    1 << 20
)  # all links of one page, each with the URL of the page beside it, as log and memory keep them:
# 10,000 of 60 bytes on a page of 40, a hundred times what pages have; 130 kB of markup could name 160 MB
LINKS_SPELLED_BYTES_STEP = (
    512 << 10
)  # links become absolute in pieces of about so much: links that are left out are never made
DEPTH_MAX = 65_535  # a card has 16 bits for it; links of a page so deep have the same depth
CALL_ROWS_MAX = 1_000_000  # one call of a verb; more must be cut by the caller

# hosts and politeness
DELAY_SECONDS_FLOOR = 1.0  # smallest gap by default
DELAY_FACTOR = 10.0  # gap = factor x duration of the last fetch (Mercator)
DELAY_FACTOR_SECONDS_MAX = 60.0  # that term alone never exceeds this
CRAWL_DELAY_SECONDS_MAX = 86_400.0  # a robots.txt may not close a host for longer than a day by a typing error
RETRY_AFTER_SECONDS_MAX = 31_536_000.0  # the longest Retry-After that counts: a year
BACK_OFF_SECONDS_ONCE = 4.0  # 429 or 503 without a usable Retry-After: a lone one between good answers passes soon
BACK_OFF_SECONDS_FIRST = 60.0  # the next one within half an hour: the host has too much to do; doubles
BACK_OFF_SECONDS_MAX = 86_400.0  # it doubles up to a day
BACK_OFF_JITTER = 0.1  # the largest random part of a back-off: hosts that refused together return at different times
PACE_MIN = 1 / 64  # the least share of its rate that a host under strain is given: six failures in a row
PACE_STEP = 1 / 8  # the part of the rate that an answer restores: a recovered host has its rate after eight answers
STRAIN_SECONDS_MAX = 300.0  # and no longer than five minutes by that rule: a host that works again is soon noticed
SLOW_FACTOR = 2.0  # an answer that needs this multiple of the usual wait is a sign of a host that slows down
SLOW_SECONDS_MIN = 0.5  # and at least this time: below, the network varies as much
SLOW_PACE = 3 / 4  # the share of its rate that it keeps then: a failure costs more
USUAL_STEP = 1 / 16  # how far the usual wait moves to each wait: a few slow answers do not become usual
USUAL_MILLISECONDS_MAX = 65_535  # the longest wait in a cell: longer ones end as timeouts by default
NETWORK_HOSTS_MIN = 8  # if this number of hosts is tried and no host answers, our own network is the cause
NETWORK_PAUSE_SECONDS_FIRST = 30.0  # then a few requests try it; each pause is twice as long
NETWORK_PAUSE_SECONDS_MAX = 600.0  # up to ten minutes: a network that works again is soon noticed
NETWORK_OUTAGE_SECONDS_MAX = 86_400.0  # a night without a network marks no host; a crawl of dead hosts ends
NETWORK_PROBES = 4  # requests that are open at once after a pause: one host may be dead by itself
UNWELCOME_POINTS_MAX = 12  # 403s or broken connections in a row, after which a host is parked
WALL_LOOKS_MAX = 256  # next URLs of a host that are looked at for one of another shape than its 403s
SILENT_SECONDS_FIRST = 600.0  # the first pause of a host that falls silent, then twice as long each time
SILENT_TRIES_MAX = 8  # tries, in two days; then it is parked
UNWELCOME_CHALLENGE = 6  # points of a challenge page: two in a row park their host
UNWELCOME_SAME_BODIES = (
    24  # a host with this many answers of one page in a row counts as blocked; a login page is rarer
)
UNWELCOME_RUNS_MAX = 16_384  # hosts whose last body is remembered, and paths with queries: some 4 MB
UNWELCOME_BODY_BYTES_MAX = 64 << 10  # the part of an answer that is searched for a challenge: such pages are short
BACK_OFF_FORGET_SECONDS = 1_800.0  # after half an hour without a refusal the next one starts from the beginning
LINE_LOOKED_AT_MAX = 64  # errands at a blocked host that are looked at one by one; thousands may redirect to one host
GROUPS_PER_HOST_MAX = 4  # politeness groups that one request counts in: domain, address and two named ones
GROUP_VAIN_WAKES_MAX = 8  # turns that a host misses, because another group is not free, before all are kept for it
GROUP_AGED_TURN_SECONDS = 2.0  # a turn by age is safe from a call for one crawl or key: workers lease more often
GROUP_CAPACITY_MAX = 65_535  # open requests of one group; a larger capacity limits nothing
GROUP_GAP_SECONDS_MAX = 86_400.0  # the longest gap of a group; more than a day is a typing error
GROUPS_ROWS_AT_ONCE = 65_536  # hosts that join their groups in one piece: some ten megabytes on the way
GROUPING_FILE_BYTES_MAX = 16 << 20  # a file of groups; a hundred thousand names or networks have place

# addresses that errands find
ADDRESS_SECONDS_USUAL = 300.0  # the time to live of an answer without one; five minutes is usual
ADDRESS_SECONDS_MIN = 30.0  # the shortest time to live, or a host would be resolved before each page
ADDRESS_SECONDS_MAX = 86_400.0  # and no longer than a day
ADDRESS_FAILED_SECONDS = (
    3_600.0  # how long a host without an address uses only its own clock; then it is resolved again
)
ADDRESS_TEXT_MAX = 64  # characters: an IPv6 address needs 39, and the zone of a local one is an interface's short name
ADDRESSES_READ_MAX = 4_096  # texts of addresses whose form is cached, for hosts of one machine; half a megabyte

# leases and retries
LEASE_SECONDS_MAX = 86_400.0  # a worker that needs longer extends
LEASES_LOST_MAX = 5  # after this many losses in a row a URL is gone(lost): it crashes its workers; three may be chance
RETRY_SECONDS = (5.0, 30.0, 300.0)  # after these the URL is a dead letter
# A page that is visited regularly is given up after 10 bad answers in a row: by then it is gone, not out of order
BAD_ANSWERS_MAX = 10
# The least pause after each bad answer but the last. Together they are 7.7 days: repairs and holidays are over by then
BAD_ANSWER_SECONDS = (1.0, 30.0, 300.0, 1_800.0, 10_800.0, 43_200.0, 86_400.0, 172_800.0, 345_600.0)
# A month: the pauses double, and a page that returned is noticed within this time, unless its schedule is longer
BAD_ANSWER_SECONDS_MAX = 30 * 86_400.0
REDIRECT_HOPS_MAX = 5  # RFC 9309 requires five for robots.txt; browsers allow 20, loops only waste politeness

# robots
# RFC 9309 section 2.5 requires at least 500 KiB; the largest of 2,553 real files has 1.4 MB, with rules to its end.
# A crawl reads BODY_BYTES_MAX of it, as of any answer
ROBOTS_BYTES_MAX = 4 << 20
ROBOTS_AGE_SECONDS_MAX = 86_400.0  # RFC 9309 section 2.4: not longer than a day
ROBOTS_AGE_SECONDS_MIN = 300.0  # its answer may shorten that, but a file with 0 is not requested before each page;
# a copy is also valid for this time after the rest that follows its request, for any Crawl-delay of the file
# The address guard of one worker refused a robots.txt: others may try for a minute, each time after
ROBOTS_GUARDED_SECONDS = 5.0  # a short wait, and long enough that a refusing worker costs nothing
ROBOTS_GUARDED_TIMES_MAX = 12
# The longest life of a verdict on our own side after a change of worker or process, from its failure on; as long
# as the wait before the first retry, so that a process that restarts in a loop does not send more requests
ROBOTS_OWN_SIDE_SECONDS = RETRY_SECONDS[0]
ROBOTS_UNREACHABLE_SECONDS_MAX = 2_592_000.0  # RFC 9309 section 2.3.1.4: after 30 days the last good copy may be used
DELTA_SECONDS_MAX = 2_147_483_648  # RFC 9111 section 1.2.2: larger numbers of seconds count as this one
ROBOTS_MEMORY_SHARE = 32  # so large a part of memory_bytes is for robots.txt files and their rules: 64 MB by default
ROBOTS_MEMORY_BYTES_LEAST = 16 << 20  # and at least this: the rules of one file of 500 KiB need 10 MB
ROBOTS_COLD_FILES_LEAST = 4_096  # robots.txt files that cold hosts may name, each of some 400 bytes in memory
ROBOTS_COLD_FILE_SHARE = 4_096  # and one for this number of bytes of memory for files: a tenth of that for entries
ROBOTS_PACKED_BYTES_MIN = 512  # smaller files stay plain: zstd makes them hardly smaller
# robots.txt bytes that a lease call parses itself: three or four usual files, 5 ms
RULES_READ_BYTES_PER_CALL = 16 << 10
# robots.txt bytes that are parsed at once outside of the calls: a fifth of a second
RULES_READ_BYTES_AT_ONCE = 512 << 10
RULES_PER_REFUSAL = 100  # rules that a verdict may look at for the price of one refusal: 15 µs
CALLERS_ERRANDS_MAX = 100_000  # sitemaps and similar errands that wait to be fetched; each needs some 800 bytes
RECHECK_ROWS_MAX = 8_192  # rows of the ledger that one lease call reads for URLs to judge again: 3 ms
RECHECK_ROWS_LEAST = 1_024  # the cost of a look into a slot of the ledger, in rows: a block of each run
RECHECK_READ_BYTES = 16 << 10  # read at once of each run for it
ROBOTS_REFUSALS_PER_CALL_MAX = 1_000  # URLs that one lease call may refuse by robots rules


# traps
RETURNS_WINDOW = 16  # fetches that the share of new content of a shape of paths is the running mean of
RETURNS_WINDOW_OF_HOST = 64  # the same for a host, which has good shapes and bad ones
RETURNS_FETCHES_MIN = 48  # the number of fetches after which a shape may be parked
RETURNS_FETCHES_MIN_OF_HOST = 128  # and the new shapes of a host
RETURNS_FETCHES_OF_TRIALS = 512  # fetches of a host until which each new shape gets one fetch
RETURNS_COPIES_MAX = 1_024  # fetches in a row that bring a shape copies of pages of other shapes, each of another one:
# after this number fewer than one page in 300 has new content (with 95 % of confidence)
RETURNS_PROBE_FIRST = 64  # of the URLs of a parked shape the 64th, 128th, 256th … is fetched
MIRROR_STEP = 4  # every fourth URL of a parked possible mirror is fetched, up to the 64th; after it
MIRROR_OCTAVE = 8  # this number in each octave: 40 of a thousand, 90 of a hundred thousand
MIRROR_CHAIN_MAX = 256  # up to this number of pages of other hosts, the last URL of a possible mirror is fetched too
MIRROR_OWN_MIN = 1 / 8  # own pages per copy of pages of other hosts, from which a host is not a mirror
RETURNS_KEPT_MAX = 65_536  # shapes and hosts with known returns: some 16 MB; above that old ones are forgotten
RETURNS_LOOKS_MAX = 64  # rows that are looked at for one that may be forgotten
RETURNS_HOSTS_MIN = 48  # the number of new hosts of a domain after which they may be parked
HOSTS_LINKED_MIN = 16  # links to other hosts of its domain from which a page may be one of endless hosts
HOST_TRIALS_MAX = 64  # new hosts of a domain that are tried at once before it is known what they bring
HOST_TRIAL_SECONDS = 60  # then a trial makes room for another: its host may rest, or never answer
HOST_TRIALS_HELD_SECONDS_MAX = 600  # how often a host that waits for its trial is checked at least
HOST_TRIALS_DOMAINS_MAX = 16_384  # domains whose trials are known: some 100 MB if each had 64; old ones are forgotten
HOSTS_LET_MAX = 1_024  # single hosts of a parked domain that are tried all the same, and known as such
HOST_FETCHES_COMPARED = 16  # hosts with fewer fetches are not among those that a large host is compared with
HOSTS_COMPARED_MIN = 100  # fewer have no 99th percentile
HOST_QUANTILE_TIMES = 2  # hosts that grow together overtake each other in turns
SHAPE_BYTES_MAX = 200  # the shape of a path is cut there: enough to distinguish shapes
WORDING_BYTES_MAX = 64 << 10  # the part of a page's text that is compared with others of its kind, without numbers
WORDING_LINKS_MAX = 1_000  # links of such a page whose texts are looked at: some 5 ms
KIN_BYTES_MAX = 16 << 10  # the part of a page's text that is compared with the same page in another folder: 0.3 ms
KIN_WORDS_MIN = 6  # words in which these may differ, a greeting and a name; not more than a third of a short text
KIN_WORDS_MAX = 12  # the same of a long text, of which they are an eighth at most
KIN_PAGES_MAX = 4  # pages of one name, and of one folder, that others are compared with
KIN_MISSES_MAX = 8  # pages of one name that differ from all of these: such a name says nothing (`index`, `readme`)
KIN_NAMES_MAX = 131_072  # known names of pages: some 20 MB; above that a crawl begins anew
KIN_KEPT_MAX = 4_096  # pages that are kept for comparing: some 40 MB where each has 16 KB of text
NEW_URLS_WINDOW_SECONDS = 86_400.0  # the window of --new-urls-per-host
PROBE_AGE_SECONDS = 30 * 86_400.0  # a site or domain is probed again after this: its answer may have changed
PROBE_WINDOW_SECONDS = 86_400.0  # the hosts of a domain that are met within it are counted together
PROBE_LINKS_MAX = 500  # links of an answer that are kept: 35 kB; a page with more is one of its own
PROBE_ANSWERS_MAX = 2_048  # sites and domains with stored answers: 150 MB if each has two with the most links
PROBE_NAME_LETTERS = 14  # 26 to the 14th: no site has it
PROBED_MAX = 65_536  # sites and domains that are probed: some 30 MB, the first pages of this number of sites 47 MB
# more, and this number of domains, each with as many hosts as possible before its probe, 135 MB
PROBE_LINE_BYTES_MAX = 1 << 20  # of probes.jsonl: a site, a URL and all links, in full

# frontier
COLUMN_ROWS_STEPS = (1_024, 8_192, 65_536, 1 << 25)  # rows of a column asked for at once: copied while that takes a
# millisecond or two; the last is address space that becomes memory as it is touched
HOT_HOST_MEMORY_BYTES = 2_000  # bytes of `memory_bytes` for each host in memory; a host needs 150 to 300 bytes
HOT_HOSTS_MIN = 10_000  # hosts that may always be in memory: two or three megabytes
COLD_STEP_ROWS = 1_000  # hosts that are looked at between two calls, and sent to the disk: two to four milliseconds
COLD_BLOCK_ROWS = 512  # hosts that are unpacked to recall one: less than for URLs, since a call may recall many
COLD_ROWS_PER_NEW_HOST = 12  # further hosts that a step looks at for each new one, so that a pass ends before half as
# many hosts as may be in memory are added
COLD_STEP_ROWS_MOST = 100_000  # hosts that a step looks at: some ten milliseconds, after a call of as many new URLs
COLD_CARDS_MAX = 8  # queued URLs that a host takes to the disk with it; hosts with more stay in memory
COLD_CARDS_BYTES_MAX = 16_384  # bytes of their cards
FRONT_HOSTS_LEAST = 8_192  # ready hosts, or those that need an address, that stay in memory: several per connection
FRONT_RETURNS = 1_024  # cold hosts with queued URLs that return to memory at once
FRONT_RETURNS_PER_CALL = 8  # how often a call brings some back, if it cannot visit those that came
FRONT_HOSTS_MOST = 65_536  # cold hosts return until memory has this number of hosts and three times its usual limit
FRONT_PLACES_UNUSED_MAX = 65_536  # places in the lines of cold hosts for hosts that have returned: half a megabyte
GROUP_WAITING_MOST = 16  # hosts that wait for a group in memory before some of them wait on disk
GROUP_WAITING_LEAST = 4  # then this number of each crawl and class remain, or more:
GROUP_WAITING_PER_TURN = 2  # for each turn of the group; they are drawn before the next call brings others
FRONT_GROUPS_AT_ONCE = 16  # groups whose hosts return before a draw, in addition to one for each wanted queue
FRONT_GROUP_LOOKS = 64  # further groups that one call looks at: two milliseconds
GROUP_ELSEWHERE_MOST = 16  # hosts that returned for a group and need an address or a robots.txt first
COLD_SAMPLE_ROWS = 16_384  # hosts whose last use is compared to find the oldest ones: a millisecond or two
NAMES_FREED_BYTES_MIN = 1 << 20  # below this, removed names of hosts are not worth copying the others
QUEUE_RULES_SHARED_MAX = 1_024  # different rules that are kept to be shared: most queues have those of their crawl
PRIORITY_WHOLE_MAX = 1 << 53  # a card has a float, which has all whole numbers up to there
CLASSES = 16  # priority classes
RECENT_BITS_STEPS = (14, 17, 21)  # places for URLs met lately, as powers of two: in the end two million, 16 MB
DROP_LOOKS_AT_CARDS = 4_096  # cards of a queue that are searched for the one to drop: a millisecond or two
WAITS_NAMED_MAX = 100  # resting hosts that are named; all of them are counted
LISTED_ROWS_MAX = 100_000  # rows of one piece of a list; a cursor leads to the next
LISTED_HOSTS_PER_STEP = 32  # some milliseconds without the frontier's lock; more would delay leases
LISTED_ROBOTS_MAX = 250  # robots.txt files of one piece of their list
LISTED_URLS_PER_STEP = 64
LISTED_BODIES_AT_ONCE = 1_024  # of a list, read in one pass through the layers of the ledger: some hundred kilobytes
LISTED_READ_BYTES = 256 << 10  # read at once of each run for a list
LISTED_SLOT_READ_BYTES = 16 << 10  # the same for the URLs of one host, which are a few records among those of its slot
RETRIED_ROWS_AT_ONCE = 8_192  # dead letters that `retry` looks for before it puts them back
RETRIED_ROWS_PER_STEP = 500  # rows in one step: some milliseconds in which no other call is served
CENSUS_ROWS_PER_STEP = 16_384  # hosts or queues that are counted at once: half a millisecond
TAILS_JUDGED = 16  # hosts of a step whose closed hours the time left includes: each a rule that is read
CENSUS_FILES_PER_STEP = 2_048  # robots.txt files, each a look at a Python object
CENSUS_ERRANDS_PER_STEP = 256  # hosts with lines of errands, each a look at Python objects
LOOK_PAUSE_SECONDS = 0.0002  # between the steps of a look, so that the lock changes hands
NAME_CHARACTERS_MAX = 1_024  # a name of a crawl, key, worker or client: memory and every lease keep it
ERROR_CLASSES_KEPT_MAX = 65_535  # error classes that URLs remember by a number of 16 bits; later ones are `other`
ERROR_CLASSES_MAX = 256  # error classes counted apart; a caller that makes them up per page must not fill the memory
WAKES_PER_CALL_MAX = 2_000  # waiting URLs that one call queues again, and resting hosts it checks: some milliseconds
RESTS_PER_FRAME_MAX = 10_000  # hosts that rest in one frame after a step of the clock: half a megabyte of the reserve
BUDGET_REST_SECONDS = 1.0  # the rest of a host while open leases of others may use up the budget that it shares
OLDEST_DRAW_EVERY = 8  # every eighth draw returns the queue that has been ready longest, so that no queue starves
# deadlines of ended leases that are kept, in addition to twice the open ones; above that, they are removed
DEADLINES_KEPT_MAX = 10_000
REQUEST_BYTES_MAX = 32 << 20  # all stored answers together; those of the client unused longest are dropped first
ANSWERS_UNTAKEN_MAX = 65_536  # outcomes of reports that broke off, whose answers a repeated report gets
REQUEST_IDS_PER_CLIENT_MAX = 1_024  # the window in which a repeated call repeats its answer
DELETED_CRAWLS_NAMED_MAX = 64  # the crawls deleted last: a lease that survives its crawl still has the crawl's name
HOLDERS_NAMED_MAX = 1_024  # workers whose names are kept; beyond them, workers without a lease are forgotten
LEAVING_QUEUES_PER_CALL = 64  # queues of deleted crawls that one call looks at: a fraction of a millisecond
# if a URL is ready that a waiting lease excludes: the time until that lease tries again
LEASE_RECHECK_SECONDS = 0.02
HELD_ROWS_MAX = 10_000  # leases of one call that can be found by its first token
CLIENTS_MAX = 1_024  # stored request-id windows; the one unused longest is dropped first
EXPLAINED_SEARCH_SECONDS_MAX = 3.0  # how long `explain` looks in the archive for a page that names a skipped link
EXPLAINED_PAGES_BYTES_MAX = (
    268_435_456  # the part of pages.jsonl, from its end, that `explain` reads without an index: a tenth of a second
)
BEFORE_COUNTED_MAX = 1_000  # URLs that precede one in its queue, as `explain` counts them
ACCEPTED_DATE_SECONDS = 60.0  # between two dates of discovery
ACCEPTED_DATES_MAX = 4_096  # stored dates; above that, every second one is dropped
SLOTS = 4_096  # fixed ranges of hash(registrable domain)
OWN_SLOT = 4_096  # the slot of facts without one: tokens, crawls, holders, watermarks
TOKEN_BITS = 40  # the tokens of an opening, or of a partition, begin at its number times 2^40: exact in JSON
CLUSTER_FILE_BYTES_MAX = 64 << 10  # name, kafka and objects, with remarks
KAFKA_SECONDS_MAX = 5.0  # for one answer of a broker; then the topic is read
KAFKA_READ_RECORDS = 500  # records read at once
KAFKA_AHEAD_BYTES = 8 << 20  # of records that the library reads ahead, for all partitions of a node
CHANGELOG_READ_BYTES = 1_048_576  # a record with its head: what a broker accepts by default
CLUSTER_STORES_AT_ONCE = 16  # stores that are called at once: each waits for its changelog
CLUSTER_WAIT_SECONDS = 0.25  # links of other nodes arrive at any time
TENURE_SECONDS = 10.0  # how long an owner may send requests after the beginning of its last append that counts
CLUSTER_ANSWERS_MAX = 4_096  # answers to requests of workers that a node repeats
NODE_LEAVE_SECONDS_MAX = 30.0  # for the requests of a partition that a node gives up
NODE_COUNT_SECONDS = 1.0  # how often each node sends its counts to the others
NODE_LISTEN_SECONDS = 0.2  # how often a node looks for questions and orders
NODE_SILENT_SECONDS_MAX = 5.0  # each node sends a message every second; without one in this time, no node runs
RATE_IDLE_SECONDS = 30.0  # a node that has had no lease for this time lends its shares of the rate
RATE_LOAN_SECONDS = 120.0  # of a share of the rate; a loan is extended while its owner stays idle
RATE_ASK_SECONDS_MAX = 5.0  # how long a request for shares counts, and how long a node that was short repeats it
PAGES_SHARE_FIRST = 8  # pages of the first share of a partition; a share is as large as all earlier ones and this
PAGES_SHARES_PER_PARTITION = 4  # a share has at most this part of what is left: partitions run dry at different times
CLUSTER_REFUSED_SAID_MAX = 5  # refused messages of a run that are printed; the end of the run says how many there were
CLUSTER_QUESTIONS_MAX = 64  # that wait for the answers of a node; more are dropped, and asked again by people
CLUSTER_ORDER_BYTES = 400_000  # rows of an order about single URLs in one record
CLUSTER_PARTITIONS_ASKED = 32  # whose owners are asked at once for the rows of a list
DOMAINS_SHOWN = 10  # the domains with the most queued URLs in the status of a cluster
DOMAINS_SLOTS_MAX = 64  # fullest slots of a store whose hosts are counted by domain
DOMAINS_HOSTS_MAX = 100_000  # hosts that are counted in these slots: a tenth of a second
WORDS_BEFORE_NOTE = 500  # records of `words` without an order, after which a store notes its place there
NODE_SNAPSHOT_SECONDS = 30.0  # how often a node looks for new checkpoints to upload
NODE_SEAL_SECONDS = 20.0  # how often a node seals its lines: the pages of this time are fetched again without its disk
NODE_ARCHIVE_SECONDS_MAX = 300.0  # the same with --archive, which makes a file of the archive each time
NODE_SEAL_SECONDS_MAX = 60.0  # how long a partition that is given up waits for object storage
SEALED_LINES_BYTES = 16 << 20  # of one object, before compression
LINKS_CARRIED_AT_ONCE = 2_000  # of one partition
LINK_STORES_AT_ONCE = 8  # whose links are sent at once, or received: each waits for its changelog
LINKS_UNSENT_MAX = 20_000  # a partition with more unsent links leases nothing: some 10 MB
LINK_RECORDS_MAX = 256  # records that a partition has not received; more links wait where they were found
PLACES_FILE_BYTES_MAX = 1 << 20  # 4,096 partitions of 60 bytes
NODE_FILE_BYTES_MAX = 64 << 10
WORDS_KEPT_RECORDS = 20_000  # newest records of `words` that are not deleted: an hour of five nodes
WORDS_READ_RECORDS = 5_000  # of the newest: a minute of 80 nodes
CLUSTER_LOOK_SECONDS = 1.0  # until a store without pages of the limit asks for some again
CLUSTER_IDLE_SECONDS = 10.0  # the longest time between two looks at a store
NODE_LEASE_SECONDS = 40.0  # of a node; longer requests extend their leases
NODE_STORE_MEMORY_BYTES_MIN = 32 << 20  # of each partition of a node
PARTITIONS_MAX = 4_096  # one slot each
CHANGELOG_MARK_RECORDS = 64  # a place in the changelog from which a reader may begin, each so many records
SNAPSHOT_PIECE_BYTES = 1 << 20
CHANGELOG_WAITING_BYTES_MAX = 64 << 20  # frames that wait for the topic; more make a call wait
CHANGELOG_RECORD_BYTES_MAX = 900_000  # below the 1,048,588 bytes that a broker accepts by default
LOG_BYTES_BEFORE_CHECKPOINT = 64 << 20  # a round starts at max(this, half the last checkpoint)
LOOKS_PER_ROUND = 4_096  # parts of that or of the share of new records; calls look in each whether a round is due
# frames with orders about crawls and queues: a round starts above this number, because each needs half a
ORDERS_BEFORE_CHECKPOINT = 256  # millisecond in recovery; 2,000 crawls that were made and deleted needed two seconds
CHECKPOINT_BYTES_PER_ORDER = 64 << 10  # a large checkpoint is worth more orders: writing it is as slow as reading
CHECKPOINT_LISTED_MAX = 3  # lists of a directory without a checkpoint, after which it is gone
CHECKPOINT_STEP_BYTES = 16 << 10  # ranges are copied up to this between two calls: a fraction of a millisecond
CHECKPOINT_WAITING_BYTES_MAX = 2 << 20  # copied and not written yet: a slow disk makes copying wait, not the calls
ROUND_PATIENCE_BYTES = 1 << 20  # bytes of log after which a round that found no room is tried again: not with each call
MERGE_PATIENCE_BYTES_MAX = 64 << 20  # and the same for merges, which are tried again twice as late each time
VERIFY_PROBLEMS_MAX = 100  # damaged places that one check names; it stops looking there
CHECKPOINT_PAYLOAD_BYTES_MAX = 16 << 20  # a longer payload makes several ranges: half a million seeds, say
CHECKPOINT_RANGE_BYTES_MAX = 256 << 10  # copied between two calls, so that no call waits long
KEPT_URLS_MIN = 100_000  # accepted URLs from which on checkpoints keep counts, and a clean stop all places: scanning
# fewer takes 0.1 s
KEPT_URLS_MAX = 100_000_000  # with more, a stop would write some 4 GB
SEARCH_COST_ROWS = 60  # searching a URL in the ledger costs as much as reading this number of them in order
SLOT_COST_ROWS = 2_000  # reading a slot costs as much as reading this number of its URLs, if it has few
SLOTS_READ_ROWS = 16_384  # URLs of the slots that are read at once if all must be read: some 30 milliseconds
SLOTS_READ_ROWS_PER_CALL = 8_192  # and by a call that leases: some 15 milliseconds
SLOTS_READ_STEPS = 8  # it reads at most this number of times as many while few hosts are ready
SLOTS_READ_ROWS_OWED = 128  # and by any other call, with four for each URL that it adds
KEPT_CRAWLS_MAX = 64  # crawls with which a checkpoint keeps counts: reading a slot reads it once for each
KEPT_CARDS = 16_384  # cards that a kept schedule copies at once
KEPT_QUEUES = 65_536  # queues of one of its ranges
KEPT_KEYS = 262_144  # seen keys of one of its ranges

# fetching
BODY_BYTES_MAX = 2_000_000  # headers included; Google reads as much of a page
CONNECT_SECONDS_MAX = 10.0  # TCP has tried four times by then, at 0, 1, 3 and 7 s
CONNECT_ALL_SECONDS_MAX = 30.0  # for all addresses of a host together: half of the whole time is left for the answer
CONNECT_FAILURES_MAX = 10_000  # remembered addresses that refused a connection; they are tried last
IDLE_SECONDS_MAX = 30.0  # a server that sends no byte for half of the whole time does not finish in it
TOTAL_SECONDS_MAX = 60.0  # below the lease's 90 s: a fetch ends before its lease does
HEAD_BYTES_MAX = 262_144  # Chromium's cap; real heads stay below 32 KiB; interim (1xx) heads count too
HEADER_LINES_MAX = 1_000  # a head of 1,000 lines is a flood; interim (1xx) heads count too
# sets of request fields that are checked and written once for many requests: a crawl has a handful, and those with
# validators pass
REQUEST_FIELDS_KNOWN = 64
CONTENT_CODINGS_MAX = 2  # gzip within gzip exists by mistake; more layers are only built as bombs
GZIP_MEMBERS_MAX = 1_024  # thousands of tiny members, or frames of zstd, cost time without any text
ZSTD_WINDOW_BITS_MAX = 23  # 8 MB: the limit of RFC 9659 for a content coding; a frame may declare terabytes
IDLE_CONNECTION_SECONDS_MAX = (
    15  # a kept connection that is idle for longer is closed, not reused: servers drop it about then
)
CONNECTIONS_MAX = 512  # sockets of the downloader, kept ones included; half of the usual 1,024 descriptors
SLOW_REQUEST_SECONDS = 0.5  # most answers are whole by then; a longer request leaves its slot to another
# the share of the slots that is reserved for hosts with a prompt last page while few more requests may leave: tarpits
KEPT_PLACES_SHARE = 1 / 4  # would use all slots otherwise, and hosts that answer within half a second need few
# if no host was prompt for this time, and slow requests may still leave, no slot is reserved
KEPT_PLACES_SECONDS = 2.0
PROMPT_HOSTS_MAX = 10_000  # hosts remembered as prompt: a host that is forgotten proves it again with its next page
HELD_UP_MAX = 512  # requests that wait while slots are reserved; above that, the first return to their queues unsent
SLOW_HOSTS_MAX = 10_000  # hosts remembered as slow: the next request to one starts without a slot
RATE_BYTES_PER_SECOND_MIN = 100  # a body that is slower on average is cut: no link of today is this slow
RATE_SECONDS_FIRST = 15.0  # the first check of that after the head: half of the longest silence
FETCH_THREADS = 1  # threads of the fetch kernel: one fetches 10,000 pages a second
FETCH_INBOX_BYTES_MAX = 16 << 20  # answers that wait to be handled; above that, nothing more is read from the sites
LARGE_BYTES_MAX = 128 << 20  # bytes of answers above BODY_BYTES_MAX during their transfer: two of the largest
LARGE_HELD_BYTES_MAX = 64 << 20  # the same of answers that a crawl reads or writes; above that, the others pause
# the longest wait of such an answer for others: servers wait a minute for a slow client (nginx, Apache)
LARGE_WAIT_SECONDS_MAX = 60.0
FETCH_DRAIN_BYTES = 4 << 20  # answers handled at once: a millisecond or two of copying
SUBMITTED_MAX = 100_000  # requests of a Fetcher under way: some 500 bytes each while they wait
FETCHED_BYTES_MAX = 64 << 20  # answers of a Fetcher that wait to be drained; beyond, no request begins
SPELLINGS_MAX = 10_000  # URLs requested as a redirect spelled them; each is two texts in memory
TLS_ORIGINS_MAX = 10_000  # remembered origins with which only libcurl can agree on TLS, or no client
AWKWARD_ORIGINS_MAX = 10_000  # origins remembered as ambiguous speakers, whose connections are not reused
ERROR_TEXT_MAX = 200  # characters of a library's or server's words in a log line

# names
DNS_SECONDS_MAX = 15.0  # a name whose servers are silent longer is tried again later
DNS_THREADS = 16  # system look-ups at once that have begun lately; each blocks a thread
DNS_PROMPT_SECONDS = 0.5  # most answers are faster; a longer look-up leaves its place to the next name
DNS_THREADS_MAX = 1_000  # look-ups at once with those that hang: each costs some 30 kB and a socket
DNS_SLOW_THREADS = 64  # look-ups at once for names that were silent before: they keep no thread from other names
# the longest wait of a look-up for a free thread; it waits only when DNS_THREADS_MAX look-ups hang
DNS_QUEUE_SECONDS_MAX = 300.0
DNS_ADDRESSES_MAX = 16  # addresses of one answer that are kept; they are dialled one after the other
DNS_CACHE_NAMES_MAX = 100_000  # about 30 MB; the oldest is dropped first
DNS_KNOWN_SECONDS = 300.0  # the system resolver reports no TTL; five minutes is usual
DNS_TTL_SECONDS_LEAST = 60.0  # floor of a DNS TTL: without it a TTL of 0 costs one look-up per request
DNS_TTL_SECONDS_MAX = 86_400.0  # and at most a day: RFC 8767 section 4 limits it too
DNS_SERVERS_MAX = 16  # each has a thread of c-ares and a socket
DNS_PROMPT = 128  # questions to DNS servers at once that have begun lately: more at once overflow a server's buffer
DNS_OPEN_MAX = 10_000  # questions to DNS servers at once with those that hang: each costs some 5 kB
DNS_SLOW_OPEN_MAX = 1_000  # and of these, for names that were silent before
DNS_HEDGE_SECONDS = 1.0  # after this silence of a server, the next one is queried too
DNS_TRY_SECONDS = 2.0  # c-ares queries a new server again after that, a known one after five times its usual time
DNS_TRIES = 6  # each waits twice as long as the last, 0.25 to 5 s: some 13 s in all, a little below DNS_SECONDS_MAX
DNS_REST_SECONDS = 5.0  # how long a failed server is queried last, doubled with each failure in a row
DNS_REST_SECONDS_MAX = 300.0
DNS_ALONE_MAX = 16  # names at once with their own channels, after garbage
DNS_ALONE_OPEN_MAX = 256  # and with those that hang: each has a thread and a socket
DNS_ALONE_TRIES = 3  # channels for one name whose socket is lost: on a loaded machine one in a thousand is
DNS_CHANNEL_NAMES = 50_000  # names of a channel of c-ares: it keeps some 1 kB of each
DNS_UNKNOWN_SECONDS = 60.0  # a name that does not exist is not resolved again at once
DNS_TEMPORARY_SECONDS = 5.0  # less than the first retry, so that the retry resolves again
DNS_STALE_SECONDS = 30.0  # the validity of old addresses while no server answers: recommended by RFC 8767 section 4
DNS_STALE_SECONDS_MAX = 86_400.0  # and only for a day after their answer: RFC 8767 section 5 suggests one to three
HOSTS_FILE_BYTES_MAX = 16 << 20  # a --hosts file; a million lines have place

# archive
WARC_ROLL_BYTES = 1 << 30  # a WARC file is finished at 1 GB, as the standard advises
WARC_GZIP_LEVEL = 2  # the level of isal: 5x smaller at 650 MB/s
WARC_RECORD_BYTES_MAX = 64 << 20  # the most that the reader of one record unpacks; records of this crawler are smaller
WARC_HEAD_BYTES_MAX = 1 << 20  # of a record of any program: usual ones have some hundred bytes
WARC_READ_BYTES_MAX = 16 << 30  # the block of a record of any program, which is passed over in pieces

SORT_BYTES_AT_ONCE = 32 << 20  # lines of an index in memory: 100,000 of them, with their objects some 50 MB
SORT_PARTS_MAX = 64  # sorted parts that are merged at once, each an open file
ARCHIVE_COPY_BYTES = 1 << 20  # of records that are copied at once
DAMAGE_NAMED_MAX = 20  # damaged places of an archive that are named; all of them are counted

ARCHIVE_SEAL_BYTES = (
    64 << 20
)  # a file for object storage: one request writes it, and it is mapped into memory meanwhile
ARCHIVE_SEAL_BYTES_MAX = 1 << 30
ARCHIVE_SEAL_SECONDS = 3_600.0  # an older file is sealed by the next record
OBJECT_READ_BYTES = 8 << 20  # of one request, of a file that is read as a whole
OBJECT_CONNECT_SECONDS_MAX = 5
OBJECT_REQUEST_SECONDS_MAX = 600  # of the largest file, on a slow line
OBJECT_RETRIES = 3
OBJECT_RETRY_SECONDS_MAX = 20
UPLOAD_LOOK_SECONDS = 1.0  # between two looks for sealed files
UPLOAD_RETRY_SECONDS_MAX = 60.0
UPLOAD_END_SECONDS_MAX = 600.0  # at the end of a crawl; a second Ctrl-C ends it

# storage
LOG_SEGMENT_BYTES_FIRST = 1 << 20  # the smallest segment and the reserve: a few thousand frames, and nothing to a disk
LOG_SEGMENT_BYTES_MAX = (
    64 << 20
)  # segments double up to this: zeroed ahead within half a second, dropped in useful pieces
LOG_SPACE_SHARE = 16  # a segment ahead of its use may have at most this share of the free space
LOG_ZERO_BYTES_STEP = 256 << 10  # zeroed and synced at once: a millisecond or two that some caller waits
REPLAY_WINDOW_ROWS = 16_384  # facts that are applied together in recovery: the fixed price of a call is spread thin
REPLAY_CARRIED_MAX = 16_384  # open leases that wait for the next window: as many as its facts
REPLAY_WINDOW_BYTES = 4 << 20  # and this number of bytes of them, so that memory is bounded
RESTORED_ROWS = 32_768  # cards of the ledger that an opening puts into their places at once
RESTORED_BYTES = 4 << 20  # and this number of bytes of their bodies
# seen keys beyond their share of the memory
SEEN_FRESH_KEYS_MIN = 65_536  # keys in memory that are worth a run; smaller sets stay in memory
# parts of the memory of keys on disk: new keys get from 1/32 to 1/8 of it, and those that are being written as much
SEEN_FRESH_SHARE = 8
SEEN_FRESH_SHARE_LEAST = 32  # if the filter needs the rest
SEEN_FILTER_PART_SHARE = 128  # the largest part of the filter, and as much again while it is replaced by two
SEEN_FILTER_REST_SHARE = 32  # for parts that are replaced and for places of pages, which are 1/77 in a merge
SEEN_KEY_BYTES = 8  # of memory for such a key; random additions leave holes in the heap
SEEN_STEP_KEYS = 16_384  # written, merged or put into a filter between two calls: a millisecond
SEEN_READ_PAGES = 16  # read at once of each run that is merged: 64 KB, some 12,000 keys
SEEN_FIND_PAGES = 1_024  # of 4 KB, read at once for look-ups
SEEN_FILTER_BITS = 12  # bits for a key: one key in 220 is looked up although it is new
SEEN_FILTER_HASHES = 6  # 8 deny a tenth more of these, and each check costs a sixth more
SEEN_ROWS_NOTED_MAX = 1 << 20  # fingerprints noted in replay and added at once: 14 MB, and a fourth of the price
LOG_READ_BYTES = 1 << 20  # read at once in recovery; a larger frame is read whole
LOG_MARK_BYTES = 64 << 10  # the accuracy of bytes_after(lsn): a thousand marks per 64 MB
LOG_SPACE_CHECK_REFUSALS = (
    16  # while the disk is full, 1 refused call in this many retries the write; quotas do not show as free space
)
CHECKPOINT_COMPRESSED_BYTES_MIN = 512  # smaller ranges stay plain: zstd makes them hardly smaller
CHECKPOINT_SYNC_BYTES = 256 << 10  # checkpoints and runs are synced as they grow: a sync of the log waits for no more
MANIFEST_BYTES_MAX = 64 << 10  # a manifest has some hundred bytes; a larger file is something else
SCRATCH_FILE_BYTES_MAX = 64 << 20  # removed in useful pieces; an offset has 26 bits
SCRATCH_FILES_OPEN_MAX = 16  # descriptors; reading moves from file to file slowly

# the backlog and the calendar
# memory by default, and its parts: 1/32 for robots.txt files, 1/8 for the ledger, 1/8 for hosts, 1/4 for seen keys, and
# the rest, 15/32, for cards of queued URLs: a gigabyte, some six million of them
MEMORY_BYTES = 2 << 30
MEMORY_BYTES_MIN = 64 << 20  # the least parts of ledger, robots rules, hosts and seen keys need some 50 MB
MEMORY_BYTES_MAX = 1 << 50
CARD_MEMORY_SHARE = (15, 32)
SEEN_MEMORY_SHARE = 4
# cards of one queue in memory: some minutes of work for a fast host; the rest waits on disk
BACKLOG_HEAD_CARDS_MAX = 64
BACKLOG_CHUNK_CARDS = 64  # enough for zstd, and few enough that a card of another rank brings little along
BACKLOG_MOVED_CARDS_MAX = 65_536  # old copies in the tail of one queue, some 20 MB; then its chunks with them are read
BACKLOG_MOVED_CARDS_ALL_MAX = 262_144  # old copies in all tails, some 80 MB; then the queue with the most reads its
BACKLOG_SPILL_CARDS_STEP = 8_192  # to disk at once: some milliseconds; more wait for the next call
BACKLOG_SPILL_QUEUES = 256  # queues whose ends are written to disk together
BACKLOG_MANY_CARDS = 1_024  # cards of one call of which whole chunks may go to disk at once, as those of an opening
BACKLOG_SPILL_PATIENCE = 64  # calls after which a disk that was full is tried again
BACKLOG_SWEEP_ROWS = 16_384  # looked at per call when memory is short: 50 µs
BACKLOG_SWEEP_CARDS_MIN = 8  # a shorter queue moves to disk whole, or not at all
# cards of short queues that one call puts aside, beside as many as came: three milliseconds
BACKLOG_ASIDE_CARDS_STEP = 1_024
BACKLOG_ASIDE_CARD_BYTES = 1_024  # a longer body counts as several cards then
BACKLOG_ASIDE_QUEUES = 128  # short queues that are copied and written at once
BACKLOG_COLLECT_CHUNKS = 16  # chunks of a wasteful file that one call copies: a fraction of a millisecond
BACKLOG_RELEASE_CHUNKS = 1_000  # chunks of dropped queues that one call releases, likewise
CHUNK_DICTIONARY_BYTES = 32 << 10  # more saves less than 2 %
CHUNK_SAMPLE_BYTES = 512  # bytes that one chunk gives to the dictionary, which samples 64 chunks
CALENDAR_MOVED_CARDS_MAX = 262_144  # old copies in the calendar, some 80 MB; then all of its buckets are written anew
CALENDAR_PURGE_CARDS = 65_536  # cards that are written anew together
CALENDAR_ROUNDS_MAX = 8  # one call of a verb moves cards so many times
CALENDAR_MOVE_CARDS = 512  # cards that one round moves from a bucket to narrower ones: a millisecond or two
CALENDAR_MOVE_BUCKETS = 64  # buckets that one round moves, likewise
CALENDAR_COMING_CARDS_MAX = 50_000  # due within the next seconds, in memory: 10 MB; more stand in order on disk

# facts
FACT_TEXT_BYTES_MAX = 65_535  # a name or URL in a fact: the card of a cold host has 16 bits for the length of its name
FACTS_COMPRESSED_BYTES_MIN = 512  # smaller payloads stay plain: zstd makes them hardly smaller, and costs 10 µs
FACTS_ZSTD_LEVEL = -1  # leases and reports as small as at level 1 for a third of its time, new URLs a fourteenth larger

# the ledger
RUN_BLOCK_ROWS = (
    2_048  # records that a point read unpacks: half a millisecond; scanning blocks of 512 takes a third more
)
RUN_BLOCK_BYTES = 256 << 10  # a block ends with the body that reaches this size: long URLs make shorter blocks
# the body of one card: URL, referrer and metadata have some 40 KB at most; in a crawl by unique keys metadata has a
# megabyte, and the unique key and the text of the URL follow it
RUN_BODY_BYTES_MAX = (1 << 20) + (64 << 10)
RUN_READ_BYTES = 256 << 10  # read at once in a scan, per run: some thousand records, a megabyte unpacked
RUN_WRITE_BYTES = 256 << 10  # written at once, so that the disk is never held for long
RUNS_PER_MERGE = 4  # at least this number of runs become one: with two, a record was written again a fifth more often
RUN_ROWS_SMALL = 4_096  # runs up to this count as equally large: merging them is a matter of milliseconds
MERGE_ROWS = 16_384  # rows in memory that are merged at once: some 4 MB, and as much again for the merged rows
MERGE_READ_BYTES = 64 << 10  # read at once of each run that is merged: a third of a megabyte unpacked
MERGE_LEAVES_BYTES = 8 << 20  # of the free space, in addition to two checkpoints: for the log and new runs
MERGE_GROWTH_SHARE = 8  # a merged run may be larger than its parts by an eighth: neighbours are less alike
AHEAD_ITEMS = 3  # pieces of a scan, or windows of the log, that a thread beside makes ready: some megabytes each
SCAN_ROWS = 8_192  # rows that a scan gives at once: some two milliseconds of work
MEMTABLE_SHARE = 8  # an eighth of memory_bytes is for new records: half for a run that is written, half for newer ones
MEMTABLE_BYTES_MAX_LEAST = 16 << 20  # and at least this: runs of less than 50,000 records would be merged all the time
KEYS_LOOKED_FOR_ALONE_MAX = 8  # 10 µs for each piece of the memtable; for more the keys of all records are packed
# freed bytes that return to the system at once: a millisecond in which no thread can allocate
GIVE_BACK_BYTES = 16 << 20
DIRECTORY_PIECES_SORTED = (
    32  # of full pieces so many are sorted together, which takes 10 ms; a look at the rest is linear
)
DIRECTORY_PIECES_MIN = 16  # from here on, one look at all pieces of the memtable is cheaper than one at each
# a call waits for the thread that writes a run at most a millisecond for each 4 KB of its records: 4 MB/s are enough
MEMTABLE_BYTES_PER_WAIT = 4 << 10
MEMTABLE_WAIT_SECONDS = 0.001
MEMTABLE_CHUNK_ROWS = 4_096  # appended records are sorted in pieces of this size: one call takes 2 ms at most
MEMTABLE_CHUNK_BYTES = 8 << 20  # and of no more bytes: sorting copies them twice, and URLs may be long
MEMTABLE_APPENDS_JOINED = 64  # appends of few rows are joined as they come: joining 4,096 at once takes 27 ms

# the engine
SMALL_CALL_ROWS_MAX = 256  # calls of so few rows are made together with others that wait: a call has a fixed price
CALL_BYTES_PER_FRAME = 8 << 20  # a longer call is cut into frames of about so much: some 40 MB while one is decided
DISCOVER_ROWS_PER_FRAME = 10_000  # a longer input is cut into frames of so many links: bounded memory, one sync

# the crawl and its output
SEEDS_MAX = 10_000_000  # 1 GB of text in memory; more are fed through Frontier.discover
SEEDS_PENDING_BYTES_MAX = 64 << 30  # the size of seeds.pending: SEEDS_MAX seeds, each of up to URL_BYTES_MAX
# bytes of bodies, texts and links that one turn of a crawl holds; the rest waits for the next turn
TURN_BYTES_MAX = 16 << 20
TRAIN_PAGES_MAX = 64  # leases of one host in one turn, where no gap lies between them
LEASES_PER_PLACE_MAX = 8  # leases of a crawl beside each request: those behind it in trains, read or being written down
ANSWERS_BYTES_MAX = 64 << 20  # answers that are read or wait for it; beyond, no lease is begun or asked for
TRAIN_SECONDS_MAX = 0.5  # then those that were not begun go back: a slow site holds no places
READING_THREADS = 2  # threads that read answers: one more than a crawl keeps busy on two cores
READ_AT_ONCE = 16  # answers that such a thread takes at once: what is paid once for them falls on more of them
READ_BYTES_AT_ONCE = 512 << 10  # and of bytes: the links of all of them are in memory together
TIMEOUT_SECONDS_MAX = 600.0  # ten minutes for one request: leases under way are extended; longer is a hung site
TRUNCATE_BYTES_MAX = 64_000_000  # bytes of one answer: a record of so many is what WARC readers take, 64 MiB
PDF_BYTES_MAX = 64_000_000  # of a PDF where it is read: one that is cut has lost its table, and most of its links
GUARDED_HOSTS_MAX = 10_000  # names and their addresses that the guard remembers to have permitted
HOSTS_RULED_MAX = 10_000  # hosts whose own settings are remembered; they are made again in microseconds
# documents in work or waiting for a reader's process that hold no place of a crawl: with 2 MB of each 64 MB
DOCUMENTS_ASIDE_MAX = 32
READER_SECONDS_MAX = 10.0  # a reader of the user, or of PDF, has so long for a page, and two at most read at once
READER_START_SECONDS_MAX = 60.0  # and its process so long to load its function: large libraries take half a minute
READER_MEMORY_BYTES_MAX = 1 << 30  # a reader may take so much beside its modules: sixty times the longest answer
READER_ANSWER_BYTES_MAX = 16 << 20  # its answer: text, links and their texts of the fullest page have half of it
PDF_SECONDS = 5.0  # sheets of a document are read for so long, and what was found counts; one takes some 30 ms
PDF_SHEETS_MAX = 1_000  # sheets of a document that are read: most of those cut at 2 MB have fewer than a hundred
PDF_ANNOTATIONS_PER_SHEET_MAX = 10_000  # as many as links of a page
HOOK_ITEMS_BYTES_MAX = 120 << 10  # the items of one page as JSON: the fullest line of a page has room for them
SELECTED_BYTES_MAX = 16 << 20  # text of a page whose tree is made: a tree takes some ten times as much memory
SELECTED_BYTES_UNCHECKED = 64 << 10  # one tag as long as that has 8,000 attributes, which take lxml a tenth of a second
SELECTED_ATTRIBUTES_MAX = 5_000  # attributes of one tag: lxml takes 30 ms for so many, and 40 s for 100,000
HOOK_REVISIT_SECONDS_MAX = 10 * 365 * 86_400.0  # a page is due again within ten years, or never
HOOK_TRACEBACK_LINES_MAX = 40  # lines of crawl.log for one failure of a hook: some ten frames
HOOK_TRACEBACKS_MAX = 100  # failures of a hook with their traceback; later ones of a run have one line each
HOOK_KINDS_TOLD_MAX = 20  # kinds of failures of hooks that a run says on the terminal: a screen; crawl.log has all
HOOK_TEXT_CHARACTERS_MAX = 300  # characters of an exception in one line: a long value in its message stays out
HOOK_ANSWER_SECONDS = 3.0  # a question to a crawl waits so long for a hook that runs; then it is told which one
HOOK_SHARE_SLOW = 0.5  # a hook that takes half of the time is what a crawl waits for
PAGES_READ_AHEAD_MAX = 64  # pages that wait for the reader of `async for`: beyond, the crawl leases no more
RUN_FILE_BYTES_MAX = 1 << 20  # run.json has some dozens of bytes; a larger file is something else
POLITENESS_VIOLATIONS_NAMED_MAX = 1_000  # violations of a record; all are counted
LINE_INDEX_RUN_BYTES = (
    2 << 20
)  # lines of one run of an index: read and sorted in 5 ms; the lines after the last run are
# read by each search, in a millisecond
LINE_INDEX_FANOUT = 8  # neighbouring runs of one length become one; 10 million lines are in 30 runs at most
LINE_INDEX_STEP_BLOCKS = 32  # blocks of each run in one step of a merge: 8,192 entries, together some milliseconds
LINE_INDEX_RETRY_BYTES = 16 << 20  # new lines before an index that met an error of the disk continues
OUTPUT_LINE_BYTES_MAX = 16 << 20  # bytes of a line file read at once; a line has some hundred kilobytes at most
# bytes of line files that the report is made from: some seconds; the report of a larger crawl reads none
SKIPPED_ASKED_MAX = 65_536  # links of which `outrider skipped` remembers their states: those that each page has
SKIPPED_KEPT_MAX = 1_000_000  # links that `outrider skipped` lists once each: some 200 MB; later ones may be repeated
BAD_SEEDS_KEPT_MAX = 10_000  # seeds that are no URLs and are listed in crawl.log: some megabytes; all are counted
REPORT_BYTES_MAX = 512 << 20
JOURNAL_BUFFER_BYTES_MAX = 64 << 10  # lines of crawl.log that wait for the next flush
TALK_CHARACTERS_MAX = 4_000  # one line on a terminal or in crawl.log; a URL of 8 KiB is cut, other files keep it whole
CONTROL_QUESTION_BYTES_MAX = 64 << 10  # a question is one short line
CONTROL_ANSWER_BYTES_MAX = 8 << 20  # a page of rows, each with two URLs at their longest
CONTROL_PAGE_ROWS_MAX = 250  # rows of a list in one answer: some milliseconds in which a crawl decides nothing else
ORDER_SECONDS_MAX = 10 * 365 * 86_400.0  # ten years: longer is what a pause or no limit is for
CONTROL_ANSWER_SECONDS_MAX = 10.0  # between two calls of the frontier there is always time for a question
CONTROL_SLOW_SECONDS_MAX = 3_600.0  # a recount or an export beside a running crawl: some seconds per million URLs
ADD_URLS_AT_ONCE = 8  # URLs of one order to a running crawl: each may have URL_BYTES_MAX, all fit into a question
CONTROL_PAUSE_SECONDS = 0.5  # before the next look for a question where no descriptor is left
CONTROL_QUESTIONS_MAX = 16  # at once; people and their monitors ask one at a time
SOCKET_PATH_BYTES_MAX = 100  # sun_path has 108 bytes on Linux, 104 elsewhere

# the service
SERVICE_BODY_BYTES_MAX = 16 << 20  # ten thousand URLs with their referrers, or the links of a batch of pages
SERVICE_READINGS_MAX = 4  # copies of all records that clients read at once: each may keep a million cards in memory
SERVICE_RECORDS_PER_PIECE = 1_000  # records of one answer: at their longest about half of REMOTE_ANSWER_BYTES_MAX
SERVICE_BODIES_BYTES_MAX = 128 << 20  # all bodies whose requests are not answered, unfinished ones included
SERVICE_BODIES_DECODED_BYTES_MAX = 16 << 20  # of these, the bodies that are decoded: objects take 25 times their JSON
SERVICE_HEAD_BYTES_MAX = 64 << 10  # a request line with the longest URL there is, escaped twice, and its headers
SERVICE_BODY_SECONDS_MAX = 30.0  # a body that takes longer is a slow client's, which keeps a place from others
SERVICE_HEAD_SECONDS_MAX = 10.0  # a request line and its headers, or a handshake: milliseconds for any program
SERVICE_REST_SECONDS_MAX = 5.0  # the rest of a body that was refused, so that its sender reads why
SERVICE_ANSWER_BYTES_STEP = 64 << 10  # an answer that is read more slowly than this much
SERVICE_ANSWER_SECONDS_MAX = 30.0  # in this time is not waited for: it keeps memory
SERVICE_WATCH_SECONDS = 0.5  # between two looks at all connections, some milliseconds for 6,000
SERVICE_EVENTS_PER_TURN_MAX = 64  # pieces of one body that are read at once: half a millisecond
SERVICE_ACCEPTS_PER_TURN_MAX = 64  # connections that are accepted at once
SERVICE_DROPS_AT_ONCE = 64  # idle connections that are closed at once, for as many new ones
SERVICE_GRACE_SECONDS = 0.1  # no connection is closed for another one before it is so old: its request is under way
SERVICE_DESCRIPTORS_RESERVED = 512  # no connections take these: the store, look-ups, requests for robots.txt files
SERVICE_PAUSE_SECONDS = 0.5  # in which no connection is accepted where no descriptor is left
SERVICE_REPORT_SECONDS = 60.0  # without need, before the next time of need is reported
SERVICE_ROWS_MAX = 10_000  # URLs or results of one body: some ten milliseconds in which nobody else is served
SERVICE_LINKS_MAX = 100_000  # links of all results of one body
SERVICE_BATCH_MAX = 1_000  # URLs of one lease: a worker asks again before it has fetched so many
SERVICE_WAIT_SECONDS_MAX = 60.0  # proxies end requests that are silent for longer
SERVICE_WAITERS_MAX = 4_096  # requests that wait for a lease; each takes a connection and some kilobytes
SERVICE_CONNECTIONS_MAX = 6_000  # at once, waiting ones and others
SERVICE_LEASED_URLS_MAX = 200_000  # URLs that are out: some hundred bytes each
SERVICE_TEXT_CHARACTERS_MAX = 2_048  # a header's value, hash or cursor
SERVICE_KEY_CHARACTERS_MAX = 255  # an Idempotency-Key
SERVICE_KEYS_MAX = 65_536  # keys that are known with their requests, as many as answers are kept; 200 bytes each
SERVICE_MISSES_MAX = 100  # tokens of an ended lease that one body may have looked up: ten milliseconds
SERVICE_TOKENS_BYTES_MAX = 1 << 20  # a file of tokens
SERVICE_WORKERS_HEARD_MAX = 4_096  # workers whose last word is remembered; the one silent longest is forgotten
SERVICE_ERRANDS_MAX = 64  # robots.txt files that the server itself asks for at once: as many as a crawl's requests
SERVICE_COUNTS_SECONDS = 0.2  # counts are that old at most: pollers share one look
OTLP_SECONDS = 15.0  # between two bodies for a collector: as often as most scrapers come
OTLP_SEND_SECONDS = 10.0  # a collector that is silent for longer is as good as away
OTLP_BODIES_MAX = 4  # that wait for the collector: each tells all, so that the newest ones are enough
OTLP_CLOSE_SECONDS = 2.0  # the last body may take so long, and holds up the end of the process
OTLP_ANSWER_BYTES_MAX = 64 << 10  # of a collector's answer; no more is read

# a frontier elsewhere
REMOTE_CONNECT_SECONDS_MAX = 10.0  # a server that takes no connection for so long is as good as away
REMOTE_SECONDS_MAX = 60.0  # an answer, beside the time that a lease may wait: a recount may keep the server busy
REMOTE_PAUSE_SECONDS_MIN = 0.1  # before the second try; each one after waits up to twice as long,
REMOTE_PAUSE_SECONDS_MAX = 5.0  # but no longer: a server that restarts is back within seconds
REMOTE_CONNECTIONS_KEPT = 8  # for threads with requests at once
REMOTE_ANSWER_BYTES_MAX = 64 << 20  # a thousand leases with metadata and referrers at their longest
# the cards of one lease call, of which an answer of a server has room for twice their bytes; a call with more than
# these leases fewer URLs
LEASE_BYTES_MAX = REMOTE_ANSWER_BYTES_MAX // 2
REMOTE_ERROR_BYTES_MAX = 64 << 10  # an error's body is some hundred bytes
REMOTE_TARGET_BYTES_MAX = 48 << 10  # a path and its query: the longest URL there is, escaped twice, has 41 kB
REMOTE_BODY_BYTES = 6 << 20  # about the size of one body: escaped text may be twice as long
REMOTE_PATIENCE_SECONDS = 30.0  # how long a call is repeated while no server answers: a restart is quicker
REMOTE_PATIENCE_ASKING_SECONDS = 5.0  # the same for a query: a person waits for it
REMOTE_ROWS_MAX = 5_000  # rows of one body, below SERVICE_ROWS_MAX

REPORTS_FILE_BYTES_MAX = 1 << 30  # reports of a worker: written anew long before
REPORTS_BYTES_KEPT = 32 << 20  # the largest file of a worker's reports: half a second to read at an opening
WORK_FILE_BYTES_MAX = 64 << 10  # work.json has two names

# this program, not a library: the modules and a crawl make many objects and few cycles, and searches for cycles at
# Python's own pace (700 objects) cost a twentieth of the CPU time
COLLECT_OBJECTS = 20_000  # made since the last search for cycles: some megabytes
COLLECT_ROUNDS = 20  # such searches before one among older objects

# exported and imported files
REPLAY_PAGES_AT_ONCE = 32  # pages of one message to a process of a replay: a kill repeats few of them
REPLAY_NAMED_MAX = 20  # failures and damaged records that a replay names; it counts all
EXPORT_COLUMNS_MAX = 1_000  # columns for own fields: Parquet keeps a buffer and statistics for each of them
EXPORT_ROWS_AT_ONCE = 10_000  # written, counted and reported at once: some megabytes of memory
EXPORT_BYTES_AT_ONCE = (
    32 << 20
)  # of these rows: usual ones have a tenth of it, one of a crawl by unique keys a megabyte
# records of an export in memory at once: some 300 MB; a larger ledger is scanned again for each such part
RECORDS_PER_SCAN = 1_000_000
RECORDS_BYTES_PER_SCAN = 256 << 20  # their bodies in memory; usual ones have 170 MB. Beyond, half of it per scan
RESTORE_ROWS_PER_FRAME = 1_000  # records of one frame: some hundred kilobytes
IMPORT_ROWS_AT_ONCE = 1_000  # rows of one call: a frame of some hundred kilobytes, durable in one sync
IMPORT_BYTES_AT_ONCE = 8 << 20  # of the rows of one call: 1,000 usual ones have a tenth of it
IMPORT_GROUP_BYTES_MAX = (
    256 << 20
)  # the pages of a row group of Parquet that are unpacked at once: those of export have some megabytes
PARQUET_FIXED_BYTES_MAX = 64  # of a cell of one size: numbers of 256 bits and identities have half of that
PARQUET_HEAD_BYTES_MAX = 1 << 20  # of one page: some writers put the least and the greatest text into it
# a record of a crawl by unique keys has a megabyte of metadata, perhaps six times as long escaped; others some 200 kB
IMPORT_LINE_BYTES_MAX = 8 << 20
LOST_URLS_NAMED_MAX = 1_000  # fingerprints that a report of a repair lists; all are counted
CAPTURES_PER_URL_MAX = 10_000  # of one URL in imported archives, in memory: some megabytes; the latest count
IMPORT_BLOCK_BYTES_MAX = 16 << 20  # of a record of a WARC in memory; the digest of a longer one is that of its head
WACZ_FILES_BYTES_MAX = 4 << 20  # the list of the files in a WACZ: usual ones have a dozen files
WACZ_UNPACKED_TIMES_MAX = 100  # its WARC files may be this much longer than the WACZ: most are stored as they are
IMPORT_FAULTS_NAMED_MAX = 20  # unusable lines that are named; all of them are counted

# catalogs
CATALOG_LINES_BYTES_AT_ONCE = 2 << 20  # lines of one transaction: some thousand pages, and some 20 MB of memory
CATALOG_URLS_AT_ONCE = 250  # URLs of one piece of a list, as other processes get them
CATALOG_ROBOTS_BYTES_AT_ONCE = 256 << 10  # bodies of robots.txt in one piece of a list; the last one may add 500 KiB
ROBOTS_GROUP_LINES_MAX = 10_000  # lines of a robots.txt that a catalog has as groups; usual ones have a hundred
CATALOG_BUSY_SECONDS = 5.0  # how long a database may be locked by another program before the catalog says so
CATALOG_CONNECT_SECONDS = 10.0  # to connect to a server; servers on other continents need less than a second
CATALOG_COMMAND_SECONDS = 300.0  # for one statement: those of a batch need some tens of milliseconds
CATALOG_MONTHS_AHEAD = 2  # partitions that exist before the first row of their month
CATALOG_PART_BYTES = 16 << 20  # lines of one Parquet part: some 20,000 pages, which wait in some 50 MB of memory
CATALOG_PART_SECONDS = 300.0  # after which a part is sealed in any case: a day has 288 of them at most
CATALOG_POSITION_BYTES_MAX = 4_096
CATALOG_POSITIONS_KEPT = 16  # positions of a catalog in a bucket: a stalled program must be slower than as many others
CATALOG_LOOK_SECONDS = 1.0  # between two looks for new lines: they are stored together, with one sync
CATALOG_RETRY_SECONDS = (1.0, 5.0, 15.0)  # pauses before a catalog that is out of reach is tried again
CATALOG_LIST_SECONDS = 10.0  # the shortest pause between two lists of all URLs,
CATALOG_LIST_SHARE = 20  # and its multiple of the time of the last list: lists use 1/20 of one processor
CATALOG_NOTE_SECONDS = 5.0  # between two notes of how far a catalog is
CATALOG_END_SECONDS_MAX = 60.0  # a crawl that ends waits this long for its catalogs to be complete
CATALOG_NOTE_BYTES_MAX = 16 << 10
CATALOG_COUNTED_BYTES_MAX = 64 << 20  # lines that a catalog does not have, counted for `status` in some 20 ms
CATALOG_NOTES_MAX = 64  # catalogs of one crawl that `status` shows

# pages
PAYLOADS_MAX = 1_000_000  # responses whose payloads a later record may refer to: some 40 MB
COPIES_PAGES_MAX = 1_000_000  # pages whose copies are named: some 300 MB; copies of later ones have no name
DUPLICATES_LISTED_MAX = 1_000_000  # copies that `outrider duplicates` lists: some 300 MB
BASE_CHARACTERS_MAX = 2_048  # a <base href>: it repeats in each of thousands of links, longer ones are attacks
TEXT_BYTES_MAX = 1_000_000  # half of the largest fetched page; more text adds nothing to likeness
LINK_TEXT_BYTES_MAX = 300  # a long headline; what is longer is a whole teaser inside an <a>
ATTRIBUTES_PER_TAG_MAX = 1_000  # elements have a dozen; later ones are ignored
PAGE_VALUE_BYTES_MAX = 16_384  # a title, rel or meta's content as it is written: twice the longest URL in a refresh
WORDS_PER_PAGE_MAX = 100_000  # words that enter a SimHash: a long book
TITLE_CHARACTERS_MAX = 1_000  # a longer text is not a title
LINE_FIELD_CHARACTERS_MAX = 1_000  # a title or header in a line of output; longer ones are stuffed
DESCRIPTION_CHARACTERS_MAX = 2_000  # a longer text is not a description
METAS_PER_PAGE_MAX = 1_000  # pages have some dozens; a million would only cost time
DIRECTIVES_PER_PAGE_MAX = 64  # robots metas define a dozen
DIRECTIVE_CHARACTERS_MAX = 100  # the longest known, unavailable_after with a date, has half of that

PREFERENCE_CHARACTERS_MAX = 8_192  # of one field or line about uses; known ones have less than a hundred
PREFERENCE_LINES_MAX = 2_000  # of one field in the groups of an agent: as many as wildcards count
TDMREP_BYTES_MAX = 256 << 10  # a tdmrep.json: files in use have some rules of a hundred bytes
TDMREP_RULES_MAX = 500  # rules in a tdmrep.json: each is compared with each page of its site, in order
TDMREP_SITES_MAX = 100_000  # sites with a known answer: some 300 bytes for one without a file, 1 kB for one with a rule
TDMREP_CRAWL_BYTES_MAX = 64 << 20  # the rules in all these files, as text
TDMREP_LINE_BYTES_MAX = 1 << 20  # a line of tdmrep.jsonl: all rules of a site, and its name
ROBOTS_IGNORED_LINES_MAX = 3  # unreadable lines of a robots.txt that a message names: the first ones show the mistake
VISIT_LINES_MAX = 100  # lines of Request-rate or Visit-time in the groups of an agent; real files have one
VISIT_MARGIN_SECONDS = 60.0  # a lease begins so long before the end of a window: a request may wait for its slot
PREFERENCE_STATEMENTS_MAX = 16  # lines of a field that are shown with a page; from here on, those with another answer
PREFERENCE_TEXT_CHARACTERS_MAX = 500  # of a statement as it is shown

HEADER_LINKS_MAX = 1_000  # links of the head of an answer
HEADER_LINKS_BYTES_MAX = 64 << 10  # and the bytes of its Link fields that are read
JPEG_SEGMENTS_MAX = 1_000  # looked at for the size of an image: photographs have some dozens before it

# sitemaps
SITEMAP_BYTES_MAX = 52_428_800  # sitemaps.org 0.90: of one file, unpacked
SITEMAP_ENTRIES_MAX = 50_000  # sitemaps.org 0.90: URLs of one file, and sitemaps of one index
SITEMAP_INDEXES_MAX = 2  # indexes that lead to a sitemap: the protocol has one, some sites put one into another
SITEMAPS_PER_AUTHORITY_MAX = 50_000  # of one robots.txt and its indexes: as many as one index may name
SITEMAPS_PER_CRAWL_MAX = 1_000_000  # each needs some 300 bytes of memory in addition to its URL
SITEMAPS_PER_CRAWL_BYTES_MAX = 256 << 20  # their URLs, which memory keeps: with the longest ones it would be 8 GB
SITEMAPS_NAMED_BYTES_MAX = 6 << 20  # URLs of those that one answer names, refused ones too: 50,000 of 125 bytes
# Verdicts on them need some 9 s with the worst possible rules: less than leases of pages have left.
SITEMAPS_FILE_BYTES_MAX = 17 << 30  # sitemaps.jsonl of the largest number, each with the longest URL
SITEMAPS_AT_ONCE = 4  # sitemaps that are fetched at once: 200 MB when all of them are as long as may be
SITEMAPS_WAITING_MAX = 128  # others that wait for these outside the slots of a crawl, well within their leases
SITEMAP_DEPTH_MAX = 64  # elements within each other: those of sitemaps and feeds have half a dozen
SITEMAP_PROBLEMS_MAX = 20  # of one kind, as examples
SITEMAP_MEMBERS_MAX = 100_000  # of a gzip file: some are written by appending; each costs some microseconds
SITEMAP_STRAYS_MAX = 1_000  # invalid octets in a file that declares UTF-8: above this it is another encoding
SITEMAP_FIELD_CHARACTERS_MAX = 100  # of a date or name, and of a problem's quotation

# patterns and lines
PATTERN_CHARACTERS_MAX = 10_000  # a scope pattern is typed by a person; a longer one is a list, which are seeds
# rules with a wildcard for one agent; each costs microseconds per URL, and 40,000 fit into 500 KiB
ROBOTS_WILDCARD_RULES_MAX = 2_000
ROBOTS_LINE_CHARACTERS_MAX = 16_664  # where Google's parser cuts a line; no URL that is crawled is as long

# revisits
CHANGE_RATE_MIN = 1e-10  # changes a second that are learned at least: one in 300 years; the logarithm needs a bound
CHANGE_RATE_MAX = 10.0  # and at most: no page is visited as often as this, so a larger rate means the same
CHANGE_CONFIDENCE_MIN = 1e-3  # a belief about nothing: one visit replaces it
# About a thousand changes: the error is 3 %, and a page that changes its habit is noticed after as many
CHANGE_CONFIDENCE_MAX = 1_000.0
CHANGE_SECONDS_PRIOR = 7 * 86_400.0  # between two changes of a page of which nothing is known
CHANGE_CONFIDENCE_PRIOR = 1.0  # of a page that was never visited again: the first visits count more than any host
CHANGE_CONFIDENCE_VAGUE = 1.05  # up to here, visits have shown hardly anything
# Of the rate of a host, given that of all hosts, and of that of all hosts, given a change a week. The standard error of
# its logarithm is 1 / sqrt(confidence): factors of 2.7 and of 24, because crawls of pages and of tickers differ as much
HOST_RATE_CONFIDENCE = 1.0
HOST_RATE_CRAWL_CONFIDENCE = 0.1
HOST_RATE_VISITS_MAX = 1_000.0  # then older visits count half: a host may change its habit
HOST_RATES_MAX = 100_000  # hosts whose change rate is in memory, 20 MB
REVISIT_SECONDS_MAX = (
    10 * 365 * 86_400.0
)  # until the next visit of a page: a pause that fits into every sum of instants
REVISIT_PRICE_MIN = 1e-12  # a price has a logarithm
RATE_MIN = 1e-6  # fetches a second over all hosts: one in eleven days
RATE_MAX = 1e6
# Draws with the whole error of a rate gain one point of freshness after hundreds of visits of each page, and lose
# seven while each page has a few. With half of it, the first is 0.2 points less, and the second is half as much.
REVISIT_CLASSES_ABOVE = 4  # the class of a due page is so many times that of a new URL of the same value
REVISIT_DRAWN = 0.5  # the share of the error of a change rate by which its draws vary
REVISIT_STEP = 0.002  # by which each fetch changes the logarithm of price or stretch; 0.0003 to 0.005 all work
# A fetch ahead of its time counts as four others: a fifth of all are. At a half, prices would be too high half of the
# time, which costs much where signals say what has changed.
REVISIT_STEPS_AHEAD = 4
REVISIT_LEVEL_LATE = 1.5  # the logarithm of price or stretch may be so far below the usual one while a crawl grows
REVISIT_LOST_MAX = 100  # fetches that nobody used, of those since the last call: an idle night does not move the level
REVISIT_NOTED_EVERY = 5  # of five looks and visits, one is added to the expected freshness
REVISIT_PAGES_AVERAGED = 1_000  # looks over which expected freshness is averaged; at least two for each planned page
REVISIT_HOST_STEP = 0.02  # the same for the price of one host that is due more often than its gap allows
REVISIT_HOST_COMPETING = 3  # due pages that such a host puts off for each visit, on average
REVISIT_HOSTS_PRICED_MAX = 100_000  # hosts with a price of their own, in memory
REVISIT_HORIZON = 5.0  # a page is looked at again after this number of mean intervals, half of it at least
REVISIT_LOOKS_PER_FETCH = 64  # at most; fewer than two on average, and more where many hosts are at their limits
REVISIT_TRIES_AHEAD = 6  # pages that are looked at before one is fetched ahead of its time
REVISIT_CLOSED_SECONDS = 0.05  # the least time until a host that is busy now is looked at again
REVISIT_HELD_SECONDS = 10.0  # between two looks at a page whose queue is paused or blocked
REVISIT_OWED_MAX = 3.0  # new URLs that a discovery share may be late or ahead: what was missing long ago is forgotten
REVISIT_LOOKS_PER_CALL = 256  # a few milliseconds
REVISIT_MOVES_PER_CALL = 3  # rounds of the calendar without a page, a few milliseconds: then the next call continues
DATE_CHARACTERS_MAX = 100  # of a date as text: no format has as many
SIGNAL_AHEAD_SECONDS = 600.0  # by which the clock of a site may be fast; dates that are later are future dates
SIGNALS_BYTES = 10  # of the signals of a page: a date and a count
SIGNALS_MAX = 1_000  # of one page since its last visit: more of them mean the same
SIGNAL_RECALL_PRIOR = 0.5  # of a host without visits: the share of changes with a signal
SIGNAL_PRECISION_PRIOR = 0.5  # and the share of signals that are true
SIGNAL_WEIGHT = 2.0  # of these two, in changes
SIGNAL_RECALL_MAX = 0.95  # of any host: a page without a signal is visited all the same
HOST_SIGNALS_MAX = 100_000  # hosts whose signals are learned: some 40 MB; above that the least recent are forgotten
PAYMENT_FIELD_BYTES_MAX = 16 << 10  # of a field or body with an offer of x402; known ones have less than 2 KB
PAYMENT_TEXT_MAX = 300  # bytes of scheme and price as they are kept: an offer of x402 has about 150
PAYMENT_PLACE_BYTES_MAX = 512  # of an authority and the first part of a path: longer ones are cut
PAYMENT_PART_ANSWERS_MAX = 3  # answers with 402 in a row, after which a first part of the paths is parked
PAYMENTS_KEPT_MAX = 32_768  # such parts: some 16 MB; above that the least recent are forgotten
PAYMENT_HOSTS_SHOWN = 5  # hosts that ask for payment in a list of counts; `outrider hosts` lists all
HOST_SIGNALS_VISITS_MAX = 512.0  # visits after which the older ones count half: a host may change its habit
HOST_SIGNALS_JUDGED_MIN = 32.0  # visits after which signals without weight are counted for a part of the pages
VOID_SIGNALS_COUNTED = 8  # for one of so many pages
HOST_SIGNALS_SHOWN_MAX = 100  # hosts that the status lists
SAID_CHANGE_CONFIDENCE = 1.1  # of a rate that a site or a caller says, in changes: hardly more than no knowledge
FILES_SHARE = 0.1  # of the rate that sitemaps and feeds get at most
FILES_REVISITED_MAX = 50_000  # of them; later ones are read once, and half of the errands remain for new ones
FILE_SECONDS_MAX = 30 * 86_400.0  # until the next visit of a sitemap
FILE_BAD_SECONDS_MIN = 86_400.0  # until the next visit of a sitemap that was read before and fails now
FILE_BAD_SECONDS_MAX = 60 * 86_400.0  # a sitemap that was not read for as long is not visited any more
REVISIT_AWAITED_FETCHES = 100  # the same in fetches, if that is longer
REVISIT_AWAITED_SECONDS = 3_600  # a page that was chosen and not leased by then is not waited for: its host is closed

# Crawlers that use a frontier of ours in place of their queue
STORED_REQUEST_BYTES_MAX = 700_000  # one request: in base64, with the names around it, it fits into metadata of 1 MiB
INTEGRATION_LEASE_SECONDS = 300.0  # for a request that is sent: longer than its download; extended at half of it
INTEGRATION_SERVED_LEASE_SECONDS = 60.0  # the same of a server: after a kill these requests wait until their leases end
INTEGRATION_AHEAD_MIN = 32  # leases that wait to be sent, so that no call waits for the disk
INTEGRATION_AHEAD_MAX = 256  # more of them would keep hosts busy that could be visited later in a better order
INTEGRATION_TURN_LINKS_MAX = 2_000  # links that one turn stores: a turn takes some ten milliseconds
INTEGRATION_TURN_SECONDS_MIN = 0.02  # between the beginnings of two turns with many events: requests wait for it
INTEGRATION_TURN_EVENTS = 8  # in a turn with many events; after fewer, the next one begins sooner in proportion
INTEGRATION_REFUSALS_PER_CALL = 50  # refused requests that one call on the event loop makes anew: some milliseconds
INTEGRATION_WAIT_SECONDS_MAX = 5.0  # between two turns
INTEGRATION_POLL_SECONDS = 1.0  # the same where other programs use the frontier
INTEGRATION_FULL_PAUSE_SECONDS = 1.0  # until a full disk is tried again
INTEGRATION_PATIENCE_SECONDS = 60.0  # that a spider waits for a server which does not answer
INTEGRATION_QUEUES_PER_CALL = 1_000  # in one part of a list
INTEGRATION_EMPTY_WAIT_SECONDS_MAX = 0.5  # as often as Crawlee asks whether a request can be sent
INTEGRATION_HOSTS_REMEMBERED_MAX = 10_000  # hosts with a 429 or a Crawl-delay; the frontier remembers all of them
INTEGRATION_THREADS = 4  # that call the frontier for tasks: while one waits for a sync, others share the next one
INTEGRATION_CLOSE_SECONDS_MAX = 90.0  # until a program stops waiting for the last writes
JOB_REQUEST_BYTES_MAX = 4 << 20  # one pickle of a JOBDIR: more than a request that can be stored
JOB_REQUEST_VALUES_MAX = 100_000  # in one request: a pickle can use one list many times
JOB_QUEUES_MAX = 2_000_000  # one per download slot and priority
JOB_INFO_BYTES_MAX = 65_536  # a file of counts
JOB_CLEAN_SECONDS_MAX = 2.0  # between the files that a spider writes when it stops
JOB_ROWS_PER_CALL = 1_000  # requests that one call of the frontier adds
JOB_FAULTS_LISTED_MAX = 20  # the others are counted
CALLER_FRAMES_MAX = 12  # between the call to a scheduler and the code of the engine that knows the page

# Identity and signatures
IDENTITY_FILE_BYTES_MAX = 16_384  # a key in PEM form has 119 bytes, identity.toml some hundred
IDENTITY_KEYS_MAX = 8  # keys of one directory: a rotation needs two
IDENTITY_RANGES_MAX = 10_000  # address ranges of one crawler: clouds publish some thousand
IDENTITY_TEXT_MAX = 2_000  # characters of a sentence in identity.toml
RECORD_HEAD_SECONDS = 3_600.0  # between two signed heads of the politeness record
RECORD_PROOF_LINES_MAX = 20_000_000  # lines of a record of which proofs are made: 64 bytes of memory each
SIGNATURE_SECONDS = 60  # the life of a signature of a request: Cloudflare's documents name a minute
SIGNATURE_BACKDATE_SECONDS = 2  # before now: clocks differ by that, and verifiers refuse signatures of the future
SIGNATURE_HOSTS_MAX = 10_000  # hosts with wishes and signatures in memory: 1 KB each
SIGNATURE_LABEL_MAX = 64  # characters of a label that a site chose
SIGNATURE_NONCE_MAX = 512  # characters of a nonce that a site chose: the draft has 88
ACCEPT_SIGNATURE_BYTES_MAX = 4_096  # all such fields of one answer: one member has 100
CLOCK_AHEAD_SECONDS_MIN = 5.0  # a refused signature: the clocks differ by more than the way of an answer
CLOCK_LATE_SECONDS_MIN = 30.0  # a refused signature: half of its life is over before it arrives
