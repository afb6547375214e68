"""The frontier as a service: the answers of `outrider serve` and of `crawl --http` over HTTP.

problems.py        errors as RFC 9457 has them: one table of types
lease_registry.py  leases that are out, by their id
verdicts.py        what a worker's result means for the frontier
server_errands.py  robots.txt files and addresses that the server asks for itself
access.py          the right to ask: addresses, Host, Origin, Sec-Fetch-Site, Referer, tokens and their roles
bodies.py          bodies of requests, within one bound for all of them
idempotency.py     Idempotency-Key: whose it is, and for which request
audit.py           DIR/audit.jsonl, a line for each order
copying.py         records of all URLs, read piece by piece
service_state.py   the state that answers need: frontier, leases, rates, waiters
routes.py          one table of paths, and the functions that answer them
app.py             from the table to an ASGI application
openapi.py         from the table to a document
metrics.py         counts and gauges as Prometheus reads them
otlp.py            the same, sent to an OpenTelemetry collector
acceptor.py        connections are accepted, and dropped where there is no room
connection.py      one connection: the parser, absolute targets, time limits
http_server.py     signals and the end
crawl_server.py    the server beside a crawl that fetches itself, on a thread of its own

The types of questions and answers, by which bodies are validated and the document is made, are `engine/messages.py`:
`engine/remote.py` speaks them, too.
"""
