"""Sends the metrics of /metrics to an OpenTelemetry collector over HTTP as JSON. A collector never delays anything.

The body is an ExportMetricsServiceRequest in the JSON mapping of OTLP: names in lowerCamelCase, 64-bit integers as
decimal strings, enums as numbers (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). A thread sends
the few bodies of a queue. If the collector is slow or away, the oldest body is dropped, because each contains all.
"""

from __future__ import annotations

import asyncio
import http.client
import math
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from prometheus_client.metrics_core import Metric

from outrider.clock import elapsed, seconds, wall
from outrider.crawl.setup.version import version
from outrider.errors import OutriderError, SettingsError, shown
from outrider.limits import OTLP_ANSWER_BYTES_MAX, OTLP_BODIES_MAX, OTLP_CLOSE_SECONDS, OTLP_SECONDS, OTLP_SEND_SECONDS
from outrider.service.metrics import registry_of
from outrider.service.service_state import ServiceState

PATH: Final = "/v1/metrics"
_CUMULATIVE: Final = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
_PORTS: Final = {"http": 80, "https": 443}
_HELP: Final = "use the address of a collector, as http://127.0.0.1:4318"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a collector."""

    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, text: str) -> Endpoint:
        """Reads the address of a collector, or of its path for metrics. Raises SettingsError."""
        if not text.isascii() or not text.isprintable() or " " in text:
            raise SettingsError(f"--otlp is {shown(text)}: {_HELP}")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise SettingsError(f"--otlp is {shown(text)}: {_HELP}") from None
        if parts.username is not None or parts.password is not None:
            raise SettingsError("--otlp has a user or password, which would not be sent; " + _HELP)
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment or port == 0:
            raise SettingsError(f"--otlp is {shown(text)}: {_HELP}")
        path = parts.path.rstrip("/")
        return cls(
            parts.scheme == "https",
            parts.hostname,
            _PORTS[parts.scheme] if port is None else port,
            path if path.endswith(PATH) else path + PATH,
        )

    def send(self, body: bytes) -> str | None:
        """Posts one body. Returns the reason if the collector did not accept it."""
        connection = (
            http.client.HTTPSConnection(
                self.host, self.port, timeout=OTLP_SEND_SECONDS, context=ssl.create_default_context()
            )
            if self.secure
            else http.client.HTTPConnection(self.host, self.port, timeout=OTLP_SEND_SECONDS)
        )
        try:
            connection.request("POST", self.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read(OTLP_ANSWER_BYTES_MAX)
            return None if 200 <= answer.status < 300 else f"it answers {answer.status}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return str(error) or type(error).__name__
        finally:
            connection.close()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


# -- bodies ------------------------------------------------------------------------------------------------------------


def body_of(families: Iterable[Metric], store: str, at_ns: int) -> bytes:
    """Returns one request with all families, without values that are not finite numbers. at_ns: since 1970."""
    resource = _attributes(
        {"service.name": "outrider", "service.version": version(), "service.instance.id": store}.items()
    )
    metrics = [found for family in families if (found := _metric(family, str(at_ns))) is not None]
    scope = {"scope": {"name": "outrider", "version": version()}, "metrics": metrics}
    return msgspec.json.encode({"resourceMetrics": [{"resource": {"attributes": resource}, "scopeMetrics": [scope]}]})


def _attributes(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    # Classes of errors are texts of callers, and JSON has no lone surrogates.
    safe = ((key, value.encode("utf-8", "replace").decode()) for key, value in pairs)
    return [{"key": key, "value": {"stringValue": value}} for key, value in safe]


def _metric(family: Metric, at: str) -> dict[str, Any] | None:
    head = {"name": family.name, "description": family.documentation}
    if family.type == "summary":
        values = {sample.name.removeprefix(family.name): sample.value for sample in family.samples}
        point = {"timeUnixNano": at, "count": str(int(values["_count"])), "sum": values["_sum"]}
        return {**head, "summary": {"dataPoints": [point]}}
    points = [
        {"attributes": _attributes(sample.labels.items()), "timeUnixNano": at, "asDouble": float(sample.value)}
        for sample in family.samples
        if math.isfinite(sample.value) and not sample.name.endswith("_created")
    ]
    if not points:
        return None
    if family.type == "counter":
        return {**head, "sum": {"dataPoints": points, "aggregationTemporality": _CUMULATIVE, "isMonotonic": True}}
    return {**head, "gauge": {"dataPoints": points}}


# -- sending -----------------------------------------------------------------------------------------------------------


class Exporter:
    """A thread that posts bodies. say: prints a sentence when the collector is lost, and when it is back."""

    def __init__(self, endpoint: Endpoint, say: Callable[[str], None]) -> None:
        self._endpoint, self._say = endpoint, say
        self._bodies: deque[bytes] = deque(maxlen=OTLP_BODIES_MAX)
        self._change = threading.Condition()
        self._closing = self._silent = self._sending = False
        # A daemon: a collector that never ends must not delay the end of the process.
        self._thread = threading.Thread(target=self._run, name="outrider-otlp", daemon=True)
        self._thread.start()

    def put(self, body: bytes) -> None:
        """Queues a body. If too many wait, the oldest one is dropped."""
        with self._change:
            self._bodies.append(body)
            self._change.notify_all()

    def settled(self) -> None:
        """Returns when no body waits, and the last one was sent or refused."""
        with self._change:
            self._change.wait_for(lambda: not self._bodies and not self._sending)

    def close(self) -> None:
        """Ends when the waiting bodies are sent, or after some seconds."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        self._thread.join(OTLP_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._bodies:
                    if self._closing:
                        return
                    self._change.wait()
                body, self._sending = self._bodies.popleft(), True
            refused = self._endpoint.send(body)
            if (refused is not None) != self._silent:
                self._silent = refused is not None
                words = f"do not reach {self._endpoint}: {refused}" if refused else f"reach {self._endpoint} again"
                self._say(f"outrider: metrics {words}")
            with self._change:
                self._sending = False
                self._change.notify_all()
            if refused is not None and self._closing:
                return


@asynccontextmanager
async def exporting(
    service_state: ServiceState,
    collector: Endpoint | None,
    say: Callable[[str], None],
    every_seconds: float = OTLP_SECONDS,
) -> AsyncIterator[None]:
    """Sends the metrics of a server to a collector during a block, and once more at its end. None: does nothing."""
    if collector is None:
        yield
        return
    exporter = Exporter(collector, say)

    async def export() -> None:
        while True:
            await _export_once(service_state, exporter)
            await asyncio.sleep(every_seconds)

    task = asyncio.ensure_future(export())
    try:
        yield
    finally:
        task.cancel()
        with suppress(OutriderError):  # the store may have ended the block
            await _export_once(service_state, exporter)
        await asyncio.to_thread(exporter.close)


async def _export_once(service_state: ServiceState, exporter: Exporter) -> None:
    statistics = await service_state.statistics()
    families = registry_of(service_state, statistics, seconds(elapsed())).collect()
    exporter.put(body_of(families, service_state.store, wall() * 1_000))
