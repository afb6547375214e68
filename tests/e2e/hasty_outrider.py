"""Outrider that waits for nothing long: retries come at once, and a full disk is waited for some tenths of a second.

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
