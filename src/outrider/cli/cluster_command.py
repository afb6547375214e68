"""The command `cluster`, which makes a cluster and shows it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

import click

from outrider.cli.help import HelpfulCommand, HelpfulGroup
from outrider.cli.layout import machine_text
from outrider.cluster.description import PARTITIONS_DEFAULT, read_cluster_file
from outrider.crawl.output.summary import counted
from outrider.crawl.output.terminal import say
from outrider.errors import SettingsError

if TYPE_CHECKING:
    from outrider.crawl.questions.side_server import SideServer

CLUSTER = "Cluster"
"""The heading of the option of a node."""


@click.group(cls=HelpfulGroup)
def cluster() -> None:
    """Crawl with many machines, on Kafka and object storage."""


@cluster.command(cls=HelpfulCommand)
@click.argument("file", metavar="FILE")
@click.option(
    "--partitions",
    type=int,
    default=PARTITIONS_DEFAULT,
    metavar="N",
    help=f"A power of two up to 4,096; it cannot change.  [default: {PARTITIONS_DEFAULT}]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def init(file: str, partitions: int, as_json: bool) -> int:
    """Make the topics and the manifest of the cluster in FILE.

    FILE is TOML with three lines: `name`, `kafka` (HOST:PORT of some brokers) and `objects` (s3://BUCKET/PREFIX, or
    file:FOLDER for machines that share a folder). You may repeat the command: it changes nothing that exists.
    """
    from outrider.crawl.cluster_run import make_cluster

    described = read_cluster_file(file)
    made, new = make_cluster(described, partitions)
    if as_json:
        told = {"name": made.name, "cluster": made.cluster, "partitions": made.partitions, "new": new}
        click.echo(machine_text(told))
        return 0
    click.echo(f"{'made' if new else 'found'} the cluster {made.name} with {counted(made.partitions, 'partition')}")
    click.echo(f"start a node on each machine: outrider crawl SEED… --cluster {described.path} -o DIR")
    return 0


def as_node(
    file: str, seeds: Sequence[str], flags: Mapping[str, object], stdin: BinaryIO | None, beside: SideServer | None
) -> int:
    """Crawls as a node of a cluster. Returns the exit code."""
    from outrider.crawl.cluster_run import crawl_in_cluster

    if beside is not None:
        raise SettingsError(
            "--http and --cluster cannot be used together: a node that crawls has no port; use `outrider status "
            f"{file}`, or serve workers with `outrider serve --cluster {file} --http HOST:PORT`"
        )
    done = crawl_in_cluster(file, seeds, flags, stdin=stdin, say=lambda line: say(line, sys.stderr))
    say(f"pages       {done.answered:,} on this node, {done.totals['done']:,} of the whole crawl done", sys.stderr)
    if done.refused:
        say(f"refused     {done.refused:,} messages for this node, which are in the topic `dead` of {file}", sys.stderr)
    say(f"ended       {done.ending}", sys.stderr)
    return done.exit_code
