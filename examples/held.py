"""A crawl inside a program: it runs in a thread, shows its status once a second, and stops after a given time.

python examples/held.py 30 out you@example.org https://example.org/
"""

from __future__ import annotations

import sys
import threading
import time

from outrider import Crawler, OutriderError


def held(seconds: float, output: str, contact: str, seeds: list[str], **options: object) -> int:
    """Returns the exit code of the crawl, as `outrider crawl` does: 4 if it was stopped."""
    codes: list[int] = []
    crawler = Crawler(seeds, output=output, contact=contact, **options)
    thread = threading.Thread(target=lambda: codes.append(crawler.run().exit_code))
    thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < end:
        thread.join(min(1.0, seconds))
        try:
            status = crawler.status()
        except OutriderError as error:  # it is starting, or has just ended
            print(error)
        else:
            print(status["answered"], "pages,", status["urls"]["queued"], "URLs wait")
    crawler.stop()
    thread.join()
    return codes[0] if codes else 1


if __name__ == "__main__":
    sys.exit(held(float(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
