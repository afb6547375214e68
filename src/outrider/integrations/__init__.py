"""Frontiers for other crawlers. Each module needs the extra of its name, and nothing else imports it.

crawlee.py           the request manager that a crawler of Crawlee gets
scrapy.py            the scheduler and the duplicate filter that Scrapy's settings name
scrapy_engine.py     what is used of Scrapy's engine beyond its documents, checked when a spider opens
stored_requests.py   requests of Scrapy as octets, and back
job_directory.py     the content of a job directory of Scrapy
job_import.py        its way into a store
pickle_values.py     plain values of pickles, read without loading them
store_thread.py      the thread that calls the frontier for Scrapy: writes, leases ahead, and waits
"""
