"""Made by `scripts/stubs.py` of the words above each method of `Frontier`: to await it, to ask a server."""

from __future__ import annotations

from outrider.engine.calls import takes_builtins
from outrider.engine.owner import Frontier
from outrider.engine.verbs import asked, awaited


@takes_builtins
class AwaitedVerbs:
    """The methods of `AsyncFrontier` that are made as `Frontier` declares."""

    extend = awaited(Frontier.extend)
    release = awaited(Frontier.release)
    defer = awaited(Frontier.defer)
    queue_errands = awaited(Frontier.queue_errands)
    set_address = awaited(Frontier.set_address)
    set_addresses = awaited(Frontier.set_addresses)
    note_projection = awaited(Frontier.note_projection)
    note_watermark = awaited(Frontier.note_watermark)
    seen_content = awaited(Frontier.seen_content)
    next_ready_seconds = awaited(Frontier.next_ready_seconds)
    finished = awaited(Frontier.finished)
    at_limit = awaited(Frontier.at_limit)
    pressure = awaited(Frontier.pressure)
    status = awaited(Frontier.status)
    explain = awaited(Frontier.explain)
    explain_idle = awaited(Frontier.explain_idle)
    host = awaited(Frontier.host)
    crawl_delays = awaited(Frontier.crawl_delays)
    robots_allow = awaited(Frontier.robots_allow)
    workers = awaited(Frontier.workers)
    held = awaited(Frontier.held)
    waits = awaited(Frontier.waits)
    queues = awaited(Frontier.queues)
    hosts = awaited(Frontier.hosts)
    urls = awaited(Frontier.urls)
    count = awaited(Frontier.count)
    pause = awaited(Frontier.pause)
    resume = awaited(Frontier.resume)
    block_until = awaited(Frontier.block_until)
    set_delay = awaited(Frontier.set_delay)
    set_limit = awaited(Frontier.set_limit)
    delete = awaited(Frontier.delete)
    reprioritise = awaited(Frontier.reprioritise)
    requeue = awaited(Frontier.requeue)
    retry = awaited(Frontier.retry)
    recheck = awaited(Frontier.recheck)
    restore = awaited(Frontier.restore)
    put = awaited(Frontier.put)
    statistics = awaited(Frontier.statistics)
    verify = awaited(Frontier.verify)
    now = awaited(Frontier.now)
    watermarks = awaited(Frontier.watermarks)
    projection = awaited(Frontier.projection)
    outbox = awaited(Frontier.outbox)
    receive = awaited(Frontier.receive)
    delivered = awaited(Frontier.delivered)
    checkpoint = awaited(Frontier.checkpoint)


@takes_builtins
class RemoteVerbs:
    """The methods of `RemoteFrontier` that are made as `Frontier` declares."""

    defer = asked(Frontier.defer)
    set_robots = asked(Frontier.set_robots)
    queue_errands = asked(Frontier.queue_errands)
    set_addresses = asked(Frontier.set_addresses)
    seen_content = asked(Frontier.seen_content)
    pressure = asked(Frontier.pressure)
    status = asked(Frontier.status)
    host = asked(Frontier.host)
    crawl_delays = asked(Frontier.crawl_delays)
    robots_allow = asked(Frontier.robots_allow)
    held = asked(Frontier.held)
    waits = asked(Frontier.waits)
    queues = asked(Frontier.queues)
    hosts = asked(Frontier.hosts)
    urls = asked(Frontier.urls)
    count = asked(Frontier.count)
    pause = asked(Frontier.pause)
    resume = asked(Frontier.resume)
    block_until = asked(Frontier.block_until)
    set_delay = asked(Frontier.set_delay)
    set_limit = asked(Frontier.set_limit)
    delete = asked(Frontier.delete)
    reprioritise = asked(Frontier.reprioritise)
    requeue = asked(Frontier.requeue)
    retry = asked(Frontier.retry)
    recheck = asked(Frontier.recheck)
    restore = asked(Frontier.restore)
    put = asked(Frontier.put)
    verify = asked(Frontier.verify)
