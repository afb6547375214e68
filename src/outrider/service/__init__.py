"""The frontier as a service: the answers of `outrider serve` and of `crawl --http` over HTTP.

problems.py        errors as RFC 9457 has them: one table of types
lease_registry.py  open leases, by their id
verdicts.py        the outcome for the frontier from a worker's result
server_errands.py  robots.txt files and addresses that the server requests itself
access.py          access: addresses, Host, Origin, Sec-Fetch-Site, Referer, tokens and their roles
bodies.py          bodies of requests, within one bound for all of them
idempotency.py     Idempotency-Key: its owner and its request
audit.py           DIR/audit.jsonl, a line for each order
copying.py         records of all URLs, read piece by piece
service_state.py   the state of the service: frontier, leases, rates, waiters
documents.py       what requests over HTTP and gRPC share: access, documents, problems
routes.py          one table of paths, and the functions that answer them
app.py             from the table to an ASGI application
openapi.py         from the table to a document
metrics.py         counts and gauges as Prometheus reads them
otlp.py            the same, sent to an OpenTelemetry collector
acceptor.py        accepts connections, and closes some if there are too many
connection.py      one connection: the parser, absolute targets, time limits
http_server.py     signals and the end
grpc_server.py     the loop of the gRPC server: all streams in turns
grpc_calls.py      the calls of URLFrontier with one request
frontier_calls.py  the calls of outrider.v1.Frontier: requests of REST with their documents
reflection.py      what tools such as grpcurl ask of a gRPC server
open_calls.py      open calls, and how many each client has
grpc_status.py     errors as status codes of gRPC
served_identity.py the key directory of an identity
crawl_server.py    the server of a crawl that fetches itself, on a thread of its own
cluster_server.py  a node of a cluster that serves workers
node_frontier.py   the frontier of such a node

`engine/messages.py` has the types of questions and answers, which validate bodies and make the document.
`engine/remote.py` uses them, too.
"""
