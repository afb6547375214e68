"""Counts and gauges as Prometheus reads them. Unknown values are absent, not zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from outrider.service.grpc_server import GrpcServer
    from outrider.service.service_state import ServiceState

PREFIX: Final = "outrider_"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def exposition(service_state: ServiceState, statistics: Mapping[str, Any], now: float) -> bytes:
    """Returns the page for a scraper. now: seconds of the clock of the rates."""
    return generate_latest(registry_of(service_state, statistics, now))


def registry_of(service_state: ServiceState, statistics: Mapping[str, Any], now: float) -> CollectorRegistry:
    """Yields all families, for any output format."""
    registry = CollectorRegistry()
    registry.register(_StateCollector(service_state, statistics, now))
    ProcessCollector(namespace="outrider", registry=registry)
    return registry


class _StateCollector(Collector):
    def __init__(self, service_state: ServiceState, statistics: Mapping[str, Any], now: float) -> None:
        self._desk, self._statistics, self._now = service_state, statistics, now

    def collect(self) -> Iterator[Metric]:
        found, service_state = self._statistics, self._desk
        rates = GaugeMetricFamily(PREFIX + "urls_per_second", "Mean of the last ten seconds.", labels=["state"])
        for name, pace in service_state.paces.items():
            rates.add_metric([name], pace.rates(self._now).now)
        yield rates
        urls = GaugeMetricFamily(PREFIX + "urls", "URLs by state.", labels=["state"])
        for state, count in found["urls"].items():
            urls.add_metric([state], count)
        yield urls
        hosts, structures, log = found["hosts"], found["structures"], found["log"]
        for name, words, value in (
            ("queued_urls", "URLs in queues, due now.", found["urls"]["queued"]),
            ("queued_hosts", "Hosts with URLs in their queues.", hosts["known"] - hosts["empty"]),
            ("ready_hosts", "Hosts that may be visited now.", hosts["ready"]),
            ("delayed_hosts", "Hosts with URLs, in their delay.", hosts["resting"]),
            ("blocked_hosts", "Hosts that are paused or in back-off.", hosts["blocked"]),
            ("known_hosts", "Hosts of all accepted URLs.", hosts["known"]),
            ("errands", "robots.txt files and addresses to request.", found["errands"]),
            ("leased_urls", "URLs that are leased.", found["urls"]["leased"]),
            ("waiting_requests", "Requests that wait for a lease.", service_state.frontier.waiting_leases),
            ("log_bytes", "Segments of the log on the disk.", log["segment_bytes"]),
            ("ledger_bytes", "Runs of the ledger on the disk.", structures["ledger"]["bytes"]),
            ("seen_bytes", "Memory of the set of seen URLs.", structures["seen"]["bytes"]),
            ("seen_disk_bytes", "Seen URLs on the disk.", structures["seen"]["disk_bytes"]),
            ("disk_full", "1 while the disk is full.", min(log["full"], 1)),
            ("merges_wait", "1 while files wait for room on disk to be merged.", min(found["merges_wait"], 1)),
            ("workers_heard", "Workers with requests since the server began.", len(service_state.heard)),
        ):
            yield GaugeMetricFamily(PREFIX + name, words, value)
        if structures["seen"]["filter_bits"]:
            words = "Share of the new URLs that the filter before the disk did not deny."
            rate = structures["seen"]["filter_false_rate"]
            yield GaugeMetricFamily(PREFIX + "bloom_false_positive_observed_rate", words, rate)
        yield from _of_hosts(service_state.measured)
        yield from _of_times(service_state.measured)
        if service_state.silent_seconds is not None:
            words = "Time since the last request of the worker with leases that is silent longest."
            yield GaugeMetricFamily(PREFIX + "worker_silent_seconds", words, service_state.silent_seconds)
        yield CounterMetricFamily(PREFIX + "duplicate_urls", "Answers with known content.", found["duplicates"])
        yield CounterMetricFamily(PREFIX + "fetched_urls", "Pages that a site answered.", found["answered"])
        yield CounterMetricFamily(PREFIX + "lost_leases", "Leases that ended without a report.", found["lost"])
        yield CounterMetricFamily(PREFIX + "log_syncs", "Syncs of the log.", log["syncs"])
        failures = CounterMetricFamily(PREFIX + "fetch_failures", "Failed attempts by class.", labels=["error"])
        for name, count in found["errors"].items():
            if name != "robots":
                failures.add_metric([name.encode("utf-8", "replace").decode()], count)
        yield failures
        requests = CounterMetricFamily(PREFIX + "http_requests", "Answered requests.", labels=["path", "status"])
        for (path, status), count in service_state.requests.items():
            requests.add_metric([path, str(status)], count)
        yield requests
        if service_state.grpc is not None:
            yield from _of_urlfrontier(service_state.grpc)


def _of_urlfrontier(server: GrpcServer) -> Iterator[Metric]:
    """Yields the metrics of gRPC, under the names of URLFrontier."""
    counts = server.counts
    for name, words, value in (
        ("getURLs_calls", "Calls of GetURLs.", counts["get_calls"]),
        ("getURLs", "URLs that were handed out.", counts["get"]),
        ("putURLs_calls", "Calls of PutURLs.", counts["PutURLs_calls"]),
        ("putDiscovered_calls", "Calls of PutDiscovered.", counts["PutDiscovered_calls"]),
        ("putURLs", "Items of PutURLs and PutDiscovered.", counts["put"]),
        ("putURLs_ignored", "Items that were skipped.", counts["put_ignored"]),
        ("putURLs_completed", "Items that completed a URL.", counts["put_completed"]),
        ("putURLs_forward_notready", "Items for other nodes; there are none.", 0),
    ):
        yield CounterMetricFamily(f"frontier_{name}", words, value)
    found = CounterMetricFamily("frontier_putURLs_discovered", "Items by their kind.", labels=["discovered"])
    found.add_metric(["true"], counts["put_discovered"])
    found.add_metric(["false"], counts["put_known"])
    yield found
    words = "From a request of GetURLs to its first URLs."
    yield SummaryMetricFamily(
        "frontier_getURLs_latency_seconds", words, count_value=counts["get_calls"], sum_value=server.hand_out_seconds
    )


def _of_hosts(found: Mapping[str, Any]) -> Iterator[Metric]:
    """Yields depths, the largest hosts, and robots.txt files; bounded in number."""
    statistics = found["statistics"]
    depth = GaugeMetricFamily(
        PREFIX + "frontier_depth", "front: queues that may be leased from now; back: URLs in queues.", labels=["queue"]
    )
    depth.add_metric(["front"], found["front"])
    depth.add_metric(["back"], statistics["structures"]["backlog"]["cards"])
    yield depth
    yield GaugeMetricFamily(PREFIX + "host_concurrency", "Open requests of the busiest host.", found["busiest"])
    sizes = GaugeMetricFamily(
        PREFIX + "per_host_queue_size", "Queued and waiting URLs of the ten largest hosts.", labels=["host"]
    )
    for host, count in found["largest"].items():
        sizes.add_metric([host], count)
    yield sizes
    files = GaugeMetricFamily(
        PREFIX + "robots_status_code", "robots.txt files by the status of their last answer.", labels=["code"]
    )
    for code, count in sorted(found["robots_status"].items()):
        files.add_metric([str(code) if code else "none"], count)
    yield files
    if found["robots_age_p95"] is not None:
        words = "Age that 95 of 100 robots.txt copies do not exceed."
        yield GaugeMetricFamily(PREFIX + "robots_cache_age_p95_seconds", words, found["robots_age_p95"])
    words = "Failed attempts with a later retry, since the store was made."
    yield CounterMetricFamily(PREFIX + "retry_count", words, statistics["retries"])


def _of_times(found: Mapping[str, Any]) -> Iterator[Metric]:
    """Yields sums and counts since the server began. Their quotient over any time is a mean."""
    for name, words, kept in (
        (
            "frontier_latency_seconds",
            "From discovery to the end of the first request with an answer.",
            found["found"],
        ),
        ("lateness_seconds", "From the instant when URL and host allowed a request, to the lease.", found["due"]),
        ("sync_latency_seconds", "Syncs of the log.", found["syncs"]),
    ):
        yield SummaryMetricFamily(PREFIX + name, words, count_value=kept.count, sum_value=kept.seconds)
