"""A plugin of pytest for Scrapy's own tests: our scheduler and our duplicate filter are in place of Scrapy's."""

import scrapy.core.scheduler
import scrapy.dupefilters
import scrapy.settings.default_settings as defaults

from outrider.integrations.scrapy import DUPEFILTER, SCHEDULER, DupeFilter, Scheduler

defaults.SCHEDULER, defaults.DUPEFILTER_CLASS = SCHEDULER, DUPEFILTER
scrapy.core.scheduler.Scheduler = Scheduler
scrapy.dupefilters.RFPDupeFilter = DupeFilter
