"""One suite of cases for request managers of Crawlee: its own queues, and ours. Run with the Python of .venv-peers.

python queue_cases.py KIND DIR     KIND: memory, files, ours; prints a JSON object from cases to what was seen
"""

from __future__ import annotations

import asyncio
import json
import sys

from crawlee import Request
from crawlee.configuration import Configuration
from crawlee.storage_clients import FileSystemStorageClient, MemoryStorageClient
from crawlee.storages import RequestQueue

from outrider.integrations.crawlee import RequestManager

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def request(name, **fields):
    return Request.from_url(f"http://site.test/{name}", **fields)


async def taken(queue):
    """The paths of all requests that can be fetched, each handled at once."""
    names = []
    while (one := await queue.fetch_next_request()) is not None:
        names.append(one.url.rsplit("/", 1)[1])
        await queue.mark_request_as_handled(one)
    return names


def answer(processed):
    return None if processed is None else [processed.was_already_present, processed.was_already_handled]


@case
async def first_come_first_served(queue):
    for name in "abc":
        await queue.add_request(request(name))
    return await taken(queue)


@case
async def forefront_is_first(queue):
    await queue.add_requests([request("a"), request("b")])
    await queue.add_request(request("c"), forefront=True)
    return await taken(queue)


@case
async def a_known_request_moves_to_the_front(queue):
    await queue.add_requests([request("a"), request("b")])
    await queue.add_request(request("b"), forefront=True)
    return await taken(queue)


@case
async def answers_of_adding(queue):
    found = [answer(await queue.add_request(request("a")))]
    found.append(answer(await queue.add_request(request("a"))))
    one = await queue.fetch_next_request()
    found.append(answer(await queue.add_request(request("a"))))
    await queue.mark_request_as_handled(one)
    found.append(answer(await queue.add_request(request("a"))))
    return found


@case
async def the_first_of_equal_requests_stays(queue):
    await queue.add_request(request("a", unique_key="same", user_data={"number": 1}))
    await queue.add_request(request("b", unique_key="same", user_data={"number": 2}))
    one = await queue.fetch_next_request()
    return [one.user_data["number"], one.unique_key, await queue.fetch_next_request() is None]


@case
async def equal_urls_with_other_unique_keys_are_other_requests(queue):
    await queue.add_requests([request("a"), request("a", unique_key="other"), request("a", always_enqueue=True)])
    return await taken(queue)


@case
async def a_reclaimed_request_is_last_with_its_new_state(queue):
    await queue.add_requests([request("a"), request("b")])
    one = await queue.fetch_next_request()
    one.retry_count += 1
    found = [answer(await queue.reclaim_request(one))]
    await queue.mark_request_as_handled(await queue.fetch_next_request())
    two = await queue.fetch_next_request()
    return [*found, two.url, two.retry_count]


@case
async def a_request_reclaimed_to_the_front_is_next(queue):
    await queue.add_requests([request("a"), request("b"), request("c")])
    one = await queue.fetch_next_request()
    await queue.reclaim_request(one, forefront=True)
    return await taken(queue)


@case
async def a_reclaimed_forefront_request_can_go_to_the_end(queue):
    await queue.add_request(request("a"), forefront=True)
    await queue.add_requests([request("b"), request("c")])
    await queue.reclaim_request(await queue.fetch_next_request())
    return await taken(queue)


@case
async def requests_that_are_not_in_progress(queue):
    await queue.add_request(request("a"))
    found = [answer(await queue.mark_request_as_handled(request("a")))]
    found.append(answer(await queue.reclaim_request(request("a"))))
    return [*found, await taken(queue)]


@case
async def empty_and_finished(queue):
    async def state():
        return [await queue.is_empty(), await queue.is_finished()]

    found = [await state()]
    await queue.add_request(request("a"))
    found.append(await state())
    one = await queue.fetch_next_request()
    found.append(await state())
    await queue.reclaim_request(one)
    found.append(await state())
    await queue.mark_request_as_handled(await queue.fetch_next_request())
    return [*found, await state()]


@case
async def counts(queue):
    await queue.add_requests([request(name) for name in "abc"])
    await queue.mark_request_as_handled(await queue.fetch_next_request())
    await queue.fetch_next_request()
    return [await queue.get_handled_count(), await queue.get_total_count()]


@case
async def all_fields_are_kept(queue):
    made = request(
        "a",
        method="POST",
        payload=b"told=1",
        headers={"X-Told": "2"},
        label="page",
        user_data={"deep": {"list": [1, None, "ü"]}},
        max_retries=7,
        use_extended_unique_key=True,
        enqueue_strategy="same-domain",
    )
    made.crawl_depth = 3
    await queue.add_request(made)
    one = await queue.fetch_next_request()
    return [one.model_dump(mode="json") == made.model_dump(mode="json"), one.max_retries, one.label, one.crawl_depth]


@case
async def a_purged_queue_is_empty_and_accepts_the_same_requests(queue):
    for name in "ab":
        await queue.add_request(request(name))
    await queue.mark_request_as_handled(await queue.fetch_next_request())
    await queue.fetch_next_request()
    await queue.purge()
    found = [await queue.is_finished(), await queue.get_total_count()]
    return [*found, answer(await queue.add_request(request("a"))), await taken(queue)]


@case
async def a_text_is_a_request(queue):
    return [answer(await queue.add_request("http://site.test/a")), await taken(queue)]


async def opened(kind, directory, name):
    if kind == "ours":
        return await RequestManager.open(f"{directory}/{name}", name="cases", delay_seconds=0.0, requests_per_host=10)
    client = MemoryStorageClient() if kind == "memory" else FileSystemStorageClient()
    where = Configuration(storage_dir=directory, purge_on_start=False)
    return await RequestQueue.open(name=name.replace("_", "-"), storage_client=client, configuration=where)


async def main(kind, directory):
    seen = {}
    for name, function in CASES.items():
        queue = await opened(kind, directory, name)
        seen[name] = await function(queue)
        if kind == "ours":
            await queue.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
