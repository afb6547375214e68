"""A real Kafka on loopback: brokers in KRaft mode, each a process of Java, ended by its pid.

The libraries are fetched once, with Maven, into target/kafka.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from servers.programs import free_port, program, skip_unfetched
from servers.relay import Relay

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / "target" / "kafka"
START_SECONDS_MAX = 120
SESSION_SECONDS = 6  # a node that is silent for so long leaves the group
USER, PASSWORD = "ann", "only for tests"


def get_libraries() -> None:
    """Gets the libraries of Kafka with Maven."""
    pom, part = Path(__file__).with_name("kafka.xml"), LIBRARIES.with_name("kafka.part")
    command = [program("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        skip_unfetched("kafka", done.stdout)
    assert 0 == done.returncode, done.stdout[-3000:]
    part.rename(LIBRARIES)


def make_certificate(folder: Path) -> None:
    """Makes a certificate of loopback, `certificate.pem`, and `broker.pem` with its key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", *words, *names, "-keyout", key, "-out", certificate]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    (folder / "broker.pem").write_text(key.read_text() + certificate.read_text())


def security(folder: Path) -> dict[str, object]:
    """Settings of a broker with TLS and a password at its relayed listener."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listener.name.relayed.ssl.keystore.type": "PEM",
        "listener.name.relayed.ssl.keystore.location": folder / "broker.pem",
        "listener.name.relayed.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.relayed.plain.sasl.jaas.config": f'{login} required user_{USER}="{PASSWORD}";',
    }


class Broker:
    """One broker, which is also a controller. secured: its relayed listener has TLS and wants a password."""

    def __init__(
        self, folder: Path, number: int, ports: list[tuple[int, int]], cluster: str, *, secured: bool = False
    ) -> None:
        self.folder, self.number, self.port = folder / str(number), number, ports[number - 1][0]
        relayed = free_port()
        self.relay = Relay(relayed)
        self.folder.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None
        self._settings = self.folder / "server.properties"
        copies, least = min(3, len(ports)), max(1, min(3, len(ports)) - 1)
        voters = ",".join(f"{node}@127.0.0.1:{control}" for node, (_, control) in enumerate(ports, 1))
        here, relayed_is = f"PLAINTEXT://127.0.0.1:{self.port}", "SASL_SSL" if secured else "PLAINTEXT"
        settings = {
            "node.id": number,
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{here},RELAYED://127.0.0.1:{relayed},CONTROLLER://127.0.0.1:{ports[number - 1][1]}",
            "advertised.listeners": f"{here},RELAYED://127.0.0.1:{self.relay.port}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,RELAYED:{relayed_is},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.folder / "data",
            "default.replication.factor": copies,
            "min.insync.replicas": least,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 1,
            "group.consumer.session.timeout.ms": SESSION_SECONDS * 1_000,
            "group.consumer.min.session.timeout.ms": SESSION_SECONDS * 1_000,
            "group.consumer.heartbeat.interval.ms": 1_000,
            "group.consumer.min.heartbeat.interval.ms": 1_000,
            **(security(folder) if secured else {}),
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings)).wait(60)

    def _java(self, main: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{LIBRARIES}/*", main, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def start(self) -> None:
        """Starts it, and returns at once."""
        self.process = self._java("kafka.Kafka", str(self._settings))

    def wait(self) -> None:
        """Returns when it accepts connections."""
        ends = time.monotonic() + START_SECONDS_MAX
        while True:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            ended = self.process is None or self.process.poll() is not None
            told = (self.folder / "log").read_text()[-3000:]
            assert not ended, told
            assert time.monotonic() < ends, told
            time.sleep(0.1)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Sends it a signal; after SIGKILL it is gone."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, number)
            if number is signal.SIGKILL:
                self.process.wait()


class Kafka:
    """Some brokers, from the beginning of a block to its end. secured: as of `Broker`."""

    def __init__(self, folder: Path, brokers: int = 3, *, secured: bool = False) -> None:
        program("java")
        self.certificate = folder / "certificate.pem"
        if secured:
            make_certificate(folder)
        if not LIBRARIES.is_dir():
            get_libraries()
        ports = [(free_port(), free_port()) for _ in range(brokers)]
        cluster = base64.urlsafe_b64encode(b"outrider-tests!!").decode().rstrip("=")
        numbers = range(1, brokers + 1)
        self.brokers = [Broker(folder, number, ports, cluster, secured=secured) for number in numbers]
        self.address = ",".join(f"127.0.0.1:{port}" for port, _ in ports)
        self.relayed_address = ",".join(f"127.0.0.1:{broker.relay.port}" for broker in self.brokers)

    def network(self, state: str) -> None:
        """Changes the network between the brokers and the clients at `relayed_address` (`Relay.state`)."""
        for broker in self.brokers:
            broker.relay.state = state

    def __enter__(self) -> Kafka:
        self.start()
        return self

    def start(self) -> None:
        """Starts brokers that do not run."""
        for broker in self.brokers:
            if broker.process is None or broker.process.poll() is not None:
                broker.start()
        for broker in self.brokers:
            broker.wait()

    def __exit__(self, *error: object) -> None:
        for broker in self.brokers:
            broker.kill(signal.SIGCONT)
            broker.kill()
            broker.relay.close()
