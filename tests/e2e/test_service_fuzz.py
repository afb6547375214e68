"""schemathesis sends a served frontier requests that its OpenAPI document permits, and requests that it forbids."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

CONFIG = """
[[operations]]
include-name = "GET /api/v1/frontier/next"
parameters = { timeout_ms = 0 }
"""
"""A lease that waits would use most of the run."""


@pytest.mark.long
def test_schemathesis_finds_no_error_of_the_server_and_no_answer_against_the_document(project, tmp_path):
    fuzzer = project / ".venv-fuzz" / "bin" / "schemathesis"
    if not fuzzer.exists():
        pytest.skip("no .venv-fuzz here: `make test-long` makes it")
    config, told = tmp_path / "schemathesis.toml", tmp_path / "told"
    config.write_text(CONFIG)
    serve = [
        sys.executable,
        "-m",
        "outrider",
        "serve",
        str(tmp_path / "crawl"),
        "--http",
        "127.0.0.1:0",
        "--drain",
        "1",
    ]
    server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
    try:
        at = server.stderr.readline().split()[-1]
        assert at.startswith("http://127.0.0.1:")
        words = [str(fuzzer), "--config-file", str(config), "run", f"{at}/openapi.json", "--no-color", "--seed", "7"]
        words += ["--exclude-checks", "positive_data_acceptance", "--max-examples", "20", "--request-timeout", "60"]
        with told.open("w") as out:
            variables = {**os.environ, "PYTHONPATH": ""}
            ended = subprocess.run(
                words, cwd=tmp_path, env=variables, stdout=out, stderr=out, timeout=1_500, check=False
            )
        text = told.read_text("utf-8", "replace")
        assert 0 == ended.returncode, text[-6_000:]
        tested = re.search(r"Tested: ([0-9]+)", text)
        assert tested is not None, text
        assert int(tested[1]) >= 27
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=60)
        assert "Traceback" not in said, said[-6_000:]
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
        server.stderr.close()
