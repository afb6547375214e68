"""Outrider without long waits: retries are sent at once, and on a full disk it waits some tenths of a second.

python hasty_outrider.py ARGUMENTS...
"""

from __future__ import annotations

import sys

from outrider import limits

limits.RETRY_SECONDS = (0.05, 0.05, 0.05)

from outrider.crawl import local_run  # noqa: E402 - behind the limits

local_run.CrawlRun.__init__.__kwdefaults__["full_seconds_max"] = 0.3

from outrider.cli.main import main  # noqa: E402

sys.exit(main())
