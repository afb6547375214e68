"""The command `serve`, which serves a frontier to workers, and the server options of a crawl."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from outrider.cli.help import HelpfulCommand, TopicOption
from outrider.cli.settings import setting_options, typed_flags
from outrider.clock import wall
from outrider.crawl.output.terminal import say
from outrider.crawl.setup.options import SETTINGS
from outrider.errors import SettingsError
from outrider.install_hints import install_command

DRAIN_SECONDS = 10.0
SERVER = "Server"
"""The heading of the options by which a process answers clients."""
SERVED = frozenset(
    {name for name, setting in SETTINGS.items() if setting.frontier}
    | {"group", "traps", "max_url_bytes", "max_path_depth", "max_path_repeats", "date_horizon", "new_urls_per_host"}
    | {"least_returns", "host_quantile", "contact", "hosts", "resolver", "allow_address", "ca", "header"}
    | {"name", "revisit"}
) - {"obey_robots", "own_sites"}
"""The settings of `serve`: those by which the frontier decides, and those of its own requests for robots.txt.
The rest are settings of a worker."""

Command = TypeVar("Command", bound=Callable[..., Any])


def _access_options(command: Command) -> Command:
    """Adds the options for access to a server."""
    for option in (
        click.option(
            "--otlp",
            cls=TopicOption,
            topic=SERVER,
            metavar="URL",
            help="Also send metrics to the OpenTelemetry collector at URL.  [default: none]",
        ),
        click.option(
            "--host-name",
            "names",
            cls=TopicOption,
            topic=SERVER,
            multiple=True,
            metavar="NAME",
            help="A host name by which clients reach this server (repeatable).  [default: none]",
        ),
        click.option(
            "--tokens",
            cls=TopicOption,
            topic=SERVER,
            metavar="FILE",
            help="A file of lines `ROLE TOKEN`. Roles: read, work, operate, admin.  [default: none]",
        ),
        click.option(
            "--tls-key",
            cls=TopicOption,
            topic=SERVER,
            metavar="FILE",
            help="The key of the certificate (PEM).  [default: none]",
        ),
        click.option(
            "--tls-cert",
            cls=TopicOption,
            topic=SERVER,
            metavar="FILE",
            help="The certificate and its chain (PEM).  [default: none]",
        ),
    ):
        command = option(command)
    return command


def answers_beside(command: Callable[..., int]) -> Callable[..., int]:
    """Adds `--http` and the other server options to a command that crawls, and calls it with a bound `beside`."""

    @click.option(
        "--http",
        cls=TopicOption,
        topic=SERVER,
        metavar="ADDR",
        help="Serve REST, metrics and console at HOST:PORT during the crawl (docs/howto/serve.md).  [default: none]",
    )
    @_access_options
    @wraps(command)
    def with_beside(
        http: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        tokens: str | None,
        names: tuple[str, ...],
        otlp: str | None,
        **words: Any,
    ) -> int:
        if http is None:
            for flag, value in (
                ("--tls-cert", tls_cert),
                ("--tls-key", tls_key),
                ("--tokens", tokens),
                ("--otlp", otlp),
            ):
                if value is not None:
                    raise SettingsError(f"{flag} needs --http; add --http HOST:PORT")
            if names:
                raise SettingsError("--host-name needs --http; add --http HOST:PORT")
            return command(beside=None, **words)
        with _service("--http"):
            from outrider.service.access import TokenRoles, listening
            from outrider.service.crawl_server import CrawlServer
            from outrider.service.otlp import Endpoint
        at, collector = listening(http, tls_cert, tls_key, tokens), None if otlp is None else Endpoint.of(otlp)
        known_as = frozenset(name.lower() for name in names)
        beside = CrawlServer(at, TokenRoles.read(tokens), names=known_as, collector=collector, say=_say)
        try:
            return command(beside=beside, **words)
        finally:
            beside.close(at_once=True)

    return with_beside


@contextmanager
def _service(asked: str) -> Iterator[None]:
    """Raises SettingsError if the block needs a library of the extra that is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"`{asked}` needs {missing.name}, which is not installed; install it with {install_command('serve')}"
        ) from None


@click.command(cls=HelpfulCommand)
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--http",
    cls=TopicOption,
    topic=SERVER,
    default="127.0.0.1:7070",
    show_default=True,
    metavar="ADDR",
    help="HOST:PORT to listen at.",
)
@click.option(
    "--grpc",
    cls=TopicOption,
    topic=SERVER,
    metavar="ADDR",
    help="Serve gRPC at HOST:PORT: URLFrontier, and Outrider's own calls (docs/howto/grpc.md); without --http, only "
    "that.  [default: none]",
)
@click.option(
    "--cluster",
    metavar="FILE",
    help="Be a node of the cluster in FILE: serve its partitions to workers (docs/howto/cluster.md).  [default: none]",
)
@click.option(
    "--identity",
    cls=TopicOption,
    topic=SERVER,
    metavar="DIR",
    help="Also serve the key directory of the identity in DIR (docs/howto/identity.md).  [default: none]",
)
@_access_options
@click.option(
    "--drain",
    cls=TopicOption,
    topic=SERVER,
    default=DRAIN_SECONDS,
    show_default=True,
    type=click.FloatRange(0, 3_600),
    metavar="SECONDS",
    help="How long to accept results after SIGTERM.",
)
@setting_options(*(name for name in SETTINGS if name not in SERVED))
def serve(
    directory: str | None,
    http: str,
    grpc: str | None,
    cluster: str | None,
    identity: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tokens: str | None,
    names: tuple[str, ...],
    otlp: str | None,
    drain: float,
    **flags: Any,
) -> int:
    """Serve the frontier in DIR to workers, over HTTP (docs/howto/serve.md) or gRPC (docs/howto/grpc.md).

    A missing DIR is created, and DIR/outrider.toml contains the settings. If you add a URL of this machine, from this
    machine, its address is allowed. Other private addresses need --allow-address.

    With --cluster, DIR is the directory of a node, by default one with the name of the cluster. Its workers fetch the
    pages of the node's partitions.

    Any address but loopback needs TLS and tokens. After SIGTERM, the server answers waiting requests and accepts
    results for the time of --drain. It ends with 0 if all work is done, and with 4 if work is left.
    """
    if directory is None and cluster is None:
        raise click.MissingParameter(param_type="argument", param_hint="'DIR'")
    with _service("serve"):
        from outrider.service.access import TokenRoles, listening
        from outrider.service.http_server import serve as run
        from outrider.service.otlp import Endpoint
        from outrider.service.served_identity import ServedIdentity
    collector = None if otlp is None else Endpoint.of(otlp)
    alone = grpc is not None and click.get_current_context().get_parameter_source("http") is ParameterSource.DEFAULT
    at = None if alone else listening(http, tls_cert, tls_key, tokens)
    grpc_at = None
    if grpc is not None:
        from outrider.engine.http_requests import GRPC_PORT
        from outrider.service.grpc_server import check_native

        check_native()
        grpc_at = listening(grpc, tls_cert, tls_key, tokens, flag="--grpc", default_port=GRPC_PORT)
    for flag, value in (("--otlp", otlp), ("--identity", identity)):
        if at is None and value is not None:
            raise SettingsError(f"{flag} needs --http; add --http HOST:PORT")
    how: dict[str, Any] = {
        "flags": typed_flags(flags),
        "names": frozenset(name.lower() for name in names),
        "drain_seconds": drain,
        "collector": collector,
        "identity": None if identity is None else ServedIdentity(identity, wall()),
        "say": _say,
    }
    roles = TokenRoles.read(tokens)
    if cluster is not None:
        from outrider.service.cluster_server import serve_in_cluster

        if at is None or grpc_at is not None:
            raise SettingsError("a node of a cluster serves HTTP only; use --http in place of --grpc")
        return 0 if serve_in_cluster(directory, cluster, at, roles, **how) else 4
    assert directory is not None
    return 0 if run(directory, at, roles, grpc=grpc_at, **how) else 4


def _say(line: str) -> None:
    say(line, sys.stderr)
