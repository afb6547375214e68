#!/bin/sh
# Writes requirements/*.txt and Cargo.lock anew. Versions in the files are kept where they still fit; UPGRADE=1 takes the
# newest. The files hold hashes for every platform, and no address of an index and no path of a machine.
set -eu
cd "$(dirname "$0")/.."
tools=target/lock
if [ ! -x "$tools/bin/uv" ]; then
    .venv/bin/python -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check uv
fi
upgrade=${UPGRADE:+--upgrade}
compile() {
    # shellcheck disable=SC2086
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate $upgrade "$@"
}
cd requirements
tools=../$tools
compile runtime.in -o runtime.txt
compile test.in -c runtime.txt -o test.txt
compile image.in -c test.txt -o image.txt
compile bench.in -c runtime.txt -o bench.txt
compile peers.in -c bench.txt -o peers.txt
compile --no-deps scrapy-2.18.in -o scrapy-2.18.txt
compile --no-deps scrapy-2.19.in -o scrapy-2.19.txt
compile judges.in -o judges.txt
compile docs.in -o docs.txt
compile wheels.in -o wheels.txt
compile fuzz.in -o fuzz.txt
cd ..
if cargo --version >/dev/null 2>&1; then
    if [ -n "$upgrade" ]; then cargo update; else cargo metadata --format-version 1 >/dev/null; fi
else
    echo 'lock: no cargo here, Cargo.lock is left as it is'
fi
