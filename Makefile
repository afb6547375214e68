# `make help` lists the targets. Every target first installs what it needs.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null 2>&1 && { echo $$p; break; }; done)
RUN := .venv/bin/python
PYTEST := $(RUN) -m pytest
# As many as there are cores: the tests that wait for a process leave one to the others.
PROCESSES ?= $(shell $(PYTHON) -c "import os; print(min(max(os.cpu_count() or 2, 2), 6))")
# The second run has the tests that depend on plain kernels: the contract of a frontier, histories of it, one crawl, and
# columns of URLs, cards and pages. The other tests in tests/contract test both kinds of kernels in the first run.
PLAIN := tests/contract/test_frontier_faces.py tests/model/test_frontier_histories.py \
	tests/e2e/test_crawl.py::test_python_crawls_too \
	$(addprefix tests/unit/test_,$(addsuffix .py,backlog_tails cards page_reader url_batch url_keys url_spelling))

.DEFAULT_GOAL := help
.PHONY: help install demo test conformance test-servers test-long test-cluster bench bench-scale lint docs lock wheels clean
# One recipe at a time, because they share .venv and target.
.NOTPARALLEL:

help:
	@echo 'make demo          installs everything, crawls a small bundled web on loopback, and shows the results'
	@echo 'make test          installs everything, checks the style and runs the tests, also on the plain kernels'
	@echo 'make conformance   runs the conformance suite of URLFrontier, with AT=HOST:PORT against any server'
	@echo 'make test-servers  runs the tests that start real servers and browsers on loopback'
	@echo 'make test-long     runs the tests that need more than some seconds'
	@echo 'make test-cluster  runs the tests of a cluster: nodes, a real Kafka and object storage on loopback'
	@echo 'make bench         measures the figures of README and docs, with other products in the same run'
	@echo 'make lint          checks style, types and Rust lints'
	@echo 'make bench-scale   measures seen keys beyond their memory, and RocksDB: python -m bench scale --keys N for more'
	@echo 'make docs          checks the documents, and builds their site into build/site'
	@echo 'make install       makes .venv with Outrider in it (.venv/bin/outrider)'
	@echo 'make lock          writes requirements/*.txt and Cargo.lock again'
	@echo 'make wheels        makes dist/*.whl: with kernels for Linux and macOS, and of plain Python; FOR=native only for this machine'
	@echo 'make clean         removes everything that was built'

install:
	@$(if $(PYTHON),,$(error Outrider needs Python 3.11 or later, and PATH does not have one))$(PYTHON) scripts/install.py

demo: install
	@$(RUN) -m outrider.sim.demo

test: install lint
	@$(RUN) scripts/check_rust.py test
	$(PYTEST) -n $(PROCESSES) --dist loadfile -m 'not long and not servers'
	@echo 'Now the tests that depend on kernels, with the plain Python kernels:'
	OUTRIDER_KERNELS=python $(PYTEST) -n $(PROCESSES) --dist loadfile -m 'not long and not servers' $(PLAIN)

conformance: install
	OUTRIDER_URLFRONTIER=$(AT) $(PYTEST) tests/contract/test_urlfrontier.py

test-servers: install
	@$(PYTHON) scripts/install.py --servers
	$(PYTEST) -m 'servers and not long' --timeout 300 tests/servers

test-long: install
	@$(PYTHON) scripts/install.py --fuzz
	@$(PYTHON) scripts/install.py --servers
	$(PYTEST) -m long --timeout 1800

test-cluster: install
	@$(PYTHON) scripts/install.py --servers
	$(PYTEST) -m servers --timeout 400 tests/servers/test_cluster*.py

bench: install
	@$(PYTHON) scripts/install.py --bench
	@$(RUN) -m bench

bench-scale: install
	@$(PYTHON) scripts/install.py --bench
	@$(RUN) -m bench scale

lint: install
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	@$(RUN) scripts/check_rust.py lint

docs: install
	@$(RUN) scripts/check_docs.py
	@$(RUN) scripts/api.py > docs/api.md
	@$(PYTHON) scripts/install.py --docs
	@.venv-docs/bin/python scripts/site.py

wheels: install
	@$(RUN) scripts/wheels.py $(or $(FOR),all) dist

lock: install
	@sh scripts/lock.sh

clean:
	rm -rf .venv .venv-bench .venv-docs .venv-fuzz .venv-judges .venv-peers target build dist demo-crawl demo-output
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/.cache bench/results
	rm -f src/outrider/_native*.so
	find src tests scripts bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
