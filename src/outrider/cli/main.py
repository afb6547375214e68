"""The command line: commands by name, results on standard output, messages on standard error, one exit code."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from outrider.errors import OutriderError
from outrider.limits import COLLECT_OBJECTS, COLLECT_ROUNDS

gc.set_threshold(COLLECT_OBJECTS, COLLECT_ROUNDS, COLLECT_ROUNDS)
# numpy's library of linear algebra is not used here. Without this setting it starts a thread for each processor, and
# these threads are busy at first: a fifth of the CPU time of a start. A library leaves that to its user.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    from outrider.cli.catalog_command import catalog_command
    from outrider.cli.cluster_command import CLUSTER, as_node, cluster
    from outrider.cli.help import HELP_COLUMNS, HelpfulGroup, TopicOption
    from outrider.cli.identity_command import identity
    from outrider.cli.judge_command import judge
    from outrider.cli.page import fetch, show
    from outrider.cli.query_commands import duplicates, explain, hosts, skipped_command, urls, why_idle
    from outrider.cli.robots_command import robots
    from outrider.cli.serve_command import answers_beside, serve
    from outrider.cli.server_access import asks_a_server
    from outrider.cli.settings import asked_twice, completion, setting_options, settings, typed_flags
    from outrider.cli.sim import sim
    from outrider.cli.store_commands import (
        add,
        export_command,
        host,
        import_command,
        politeness,
        repair,
        replay,
        retry,
        verify,
    )
    from outrider.cli.url import url
    from outrider.cli.work_command import work
    from outrider.crawl.output.terminal import safe, say
    from outrider.storage.files import is_no_space
except OutriderError as error:  # OUTRIDER_KERNELS names kernels that are missing
    sys.stderr.write(f"outrider: {error}\n")
    sys.exit(error.exit_code)

if TYPE_CHECKING:
    from outrider.crawl.questions.remote_queries import Access
    from outrider.crawl.questions.side_server import SideServer

EXIT_CODES = (
    (0, "finished"),
    (1, "a bug in Outrider"),
    (2, "wrong usage or settings (no connection was made)"),
    (3, "stopped at a limit, work is left"),
    (4, "stopped by you, work is left"),
    (5, "the store is damaged, or the directory contains something else"),
    (6, "another process uses the store"),
    (7, "the disk is full"),
    (8, "no page could be fetched, or a server or service is out of reach"),
    (9, "`verify`, `politeness` or `judge` found a violation"),
    (10, "a hook failed on most pages"),
)
STOPPED_BY_USER = 4
USAGE = 2
BUG = 1
FULL = 7


_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES) + "."
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS}
_PURPOSES = (
    ("Crawl", ("crawl", "resume", "fetch", "show")),
    ("Watch a crawl", ("status", "top", "explain", "why-idle", "hosts", "urls", "duplicates", "skipped")),
    ("Change a crawl", ("add", "host", "retry")),
    ("Data in and out", ("export", "import", "catalog", "replay")),
    ("Check and repair", ("verify", "repair", "politeness", "judge")),
    ("Many machines", ("serve", "work", "cluster")),
    ("Tools", ("url", "robots", "identity", "sim")),
    ("Outrider itself", ("settings", "completion", "version")),
)
_CRAWL_EXAMPLES = (
    (
        "outrider crawl https://example.org/ --contact me@example.org --max-pages 100",
        "100 pages of one site, into ./example.org",
    ),
    (
        "outrider crawl @seeds.txt -o news --scope domain --contact me@example.org",
        "All sites of a list, with their subdomains",
    ),
    ("outrider resume news --delay 5", "Continue that crawl, with a longer gap"),
)


class _Commands(HelpfulGroup):
    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:  # click itself would return an exit code of 1
            raise click.exceptions.Exit(_enough()) from None


def _say_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        say_version()
        context.exit()


@click.group(cls=_Commands, purposes=_PURPOSES, context_settings=_CONTEXT, epilog=_EPILOG)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_say_version,
    help="Print what `version` prints.",
)
def outrider() -> None:
    """Outrider is a polite web crawler that survives every crash.

    `outrider COMMAND --help` shows the options of a command.
    """


@outrider.command(
    examples=_CRAWL_EXAMPLES,
    epilog="You can also set each option in DIR/outrider.toml, or as a variable such as OUTRIDER_MAX_PAGES.",
)
@click.argument("seeds", nargs=-1, metavar="[SEED]...")
@setting_options()
@click.option(
    "--cluster",
    "cluster_file",
    cls=TopicOption,
    topic=CLUSTER,
    path=True,
    metavar="FILE",
    help="Crawl as a node of the cluster in FILE (docs/howto/cluster.md).  [default: none]",
)
@answers_beside
def crawl(seeds: tuple[str, ...], cluster_file: str | None, beside: SideServer | None, **flags: Any) -> int:
    """Start a crawl, or add seeds to one and continue it.

    A SEED is a URL, @FILE with one URL per line, or - for standard input. If the directory already contains a crawl,
    the seeds are added and the crawl continues. --anew starts again instead, with the settings of that directory.
    """
    from outrider.crawl.start import start

    _freeze_modules()
    # A stream that was closed before the start is None.
    stdin = sys.stdin.buffer if sys.stdin is not None else None
    if cluster_file is not None:
        return as_node(cluster_file, seeds, typed_flags(flags), stdin, beside)
    return start(seeds, asked_twice(typed_flags(flags)), stdin=stdin, talk=sys.stderr, beside=beside).exit_code


@outrider.command()
@click.argument("directory", metavar="DIR")
@setting_options("output", "anew")
@answers_beside
def resume(directory: str, beside: SideServer | None, **flags: Any) -> int:
    """Continue the crawl in DIR with its saved settings. Options override them."""
    from outrider.crawl.start import start

    _freeze_modules()
    words = {**asked_twice(typed_flags(flags)), "output": directory}
    return start((), words, talk=sys.stderr, resume=True, beside=beside).exit_code


def _freeze_modules() -> None:
    """Keeps the objects of all modules out of searches for cycles: a crawl makes few cycles, and searches cost a
    twentieth of its CPU time. Only for this program, not for a library."""
    gc.collect()
    gc.freeze()


@outrider.command()
@click.argument("directory", metavar="DIR|ADDRESS|FILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@asks_a_server
def status(directory: str, as_json: bool, access: Access) -> int:
    """Show counts, rates and the remaining time of the crawl in DIR, or of the server at ADDRESS.

    For the FILE of a cluster (its name ends in .toml), it shows the counts of all nodes.
    """
    found, lines = _status(directory, access)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=True))
    else:
        for line in lines:
            click.echo(safe(line))
    return 0


def _status(directory: str, access: Access) -> tuple[dict[str, Any], list[str]]:
    """Returns the fields of the status, and its lines for people."""
    from outrider.cluster.description import is_cluster_file
    from outrider.crawl.questions.status import status_lines, status_of

    if is_cluster_file(directory):
        from outrider.crawl.questions.cluster_status import cluster_status, cluster_status_lines

        found = cluster_status(directory)
        return found, list(cluster_status_lines(found, directory))
    found = status_of(directory, access)
    return found, status_lines(found, directory)


@outrider.command()
@click.argument("directory", metavar="DIR|ADDRESS|FILE")
@click.option(
    "--every",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two pictures.",
)
@asks_a_server
def top(directory: str, every: float, access: Access) -> int:
    """Watch the status of a crawl, with its pages a second as bars.

    A terminal shows it until you press Ctrl-C. If the output is not a terminal, it is printed once.
    """
    from outrider.crawl.questions.watching import watch

    def look() -> tuple[int, list[str]]:
        found, lines = _status(directory, access)
        return found.get("answered", found["urls"]["done"]), lines

    title = f"outrider top {directory}, every {every:g} s; Ctrl-C ends it"
    with contextlib.suppress(KeyboardInterrupt):
        watch(look, sys.stdout, title=title, every=every)
    return 0


@outrider.command()
def version() -> int:
    """Print the versions of Outrider, Python, its kernels and libcurl."""
    say_version()
    return 0


def say_version() -> None:
    """Prints the release and the versions below it, one line each."""
    from outrider.crawl.setup.version import version as release
    from outrider.kernels import in_use

    try:
        import pycurl
    except ImportError:
        libcurl = "none (the native kernels do not need it)"
    else:
        libcurl = "{1} ({5})".format(*pycurl.version_info())
    click.echo(f"outrider {release()}")
    click.echo(f"Python   {platform.python_version()}")
    click.echo(f"kernels  {in_use()}")
    click.echo(f"libcurl  {libcurl}")


_OTHERS = (
    explain,
    fetch,
    show,
    add,
    host,
    why_idle,
    hosts,
    urls,
    duplicates,
    skipped_command,
    export_command,
    import_command,
    catalog_command,
    replay,
    politeness,
    verify,
    repair,
    retry,
    settings,
    completion,
    url,
    robots,
    identity,
    judge,
    serve,
    work,
    cluster,
    sim,
)
for _command in _OTHERS:
    outrider.add_command(_command)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line. Returns its exit code. An error is one sentence on standard error."""
    try:
        answer = outrider.main(args=list(arguments), prog_name="outrider", standalone_mode=False)
    except click.exceptions.Exit as left:
        return left.exit_code
    except click.exceptions.NoArgsIsHelpError as alone:
        click.echo(alone.format_message(), err=True)
        return USAGE
    except click.ClickException as wrong:
        say(usage_sentence(wrong, arguments), sys.stderr)
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        say("outrider: stopped", sys.stderr)
        return STOPPED_BY_USER
    except BrokenPipeError:
        return _enough()
    except OutriderError as error:
        say(f"outrider: {error}", sys.stderr)
        return error.exit_code
    except OSError as error:
        return _full(error) if is_no_space(error) else _bug(error)
    except Exception as error:  # noqa: BLE001 - any other error: one sentence, the rest with OUTRIDER_DEBUG
        return _bug(error)
    return int(answer or 0)


def _bug(error: Exception) -> int:
    if os.environ.get("OUTRIDER_DEBUG"):
        for line in traceback.format_exc().splitlines():
            say(line, sys.stderr)
    say(bug_sentence(error), sys.stderr)
    return BUG


def _full(error: OSError) -> int:
    """Says that the disk of standard output, or of a file of results, is full. A crawl loses nothing by that."""
    where = str(error.filename) if error.filename is not None else "standard output"
    say(
        f"outrider: {where} cannot be written ({error.strerror}); free space there, and run the command again",
        sys.stderr,
    )
    _drop_output()
    return FULL


def usage_sentence(wrong: click.ClickException, arguments: Sequence[str] = ()) -> str:
    """Returns the message for a wrong command line: first what is wrong, then where to read more. arguments: as typed,
    because an error about an option without its value does not name the command."""
    context = getattr(wrong, "ctx", None)
    typed = [word for word in arguments[:1] if word in outrider.commands]
    command = context.command_path if context is not None else " ".join(["outrider", *typed])
    told = " ".join(wrong.format_message().split()).rstrip(".")
    if told.endswith(("?", "lists them")):  # it contains the way out itself
        return f"outrider: {told}"
    return f"outrider: {told}; `{command} --help` shows the usage"


def _enough() -> int:
    """Returns the exit code for results whose reader has closed its end."""
    _drop_output()
    return 0


def _drop_output() -> None:
    """Redirects standard output to nothing, so that the interpreter's last flush does not reach it either."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def bug_sentence(error: BaseException) -> str:
    """Returns the message for a bug, and the files to send with the report."""
    from outrider.crawl.setup.version import version as release

    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    said = str(error)
    return (
        f"outrider: this is a bug in Outrider {release()}: {type(error).__name__}{': ' + said if said else ''}{where}; "
        "nothing accepted is lost; please report this sentence, your command, and the last lines of crawl.log "
        "(OUTRIDER_DEBUG=1 shows more)"
    )


def main() -> None:
    """Runs the command `outrider`."""
    if sys.stderr is None:  # closed before the start: the output has no reader
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the end of the process
    # A closed reader raises BrokenPipeError, where the crawl can still end in good order.
    with contextlib.suppress(AttributeError, ValueError):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    code = run(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:  # results that were still in the buffer
        code = _enough() if isinstance(error, BrokenPipeError) else _full(error)
    sys.exit(code)


if __name__ == "__main__":
    main()
