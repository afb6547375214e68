#!/bin/sh
# DuckDB reads a fraction as a whole number if it appears after the first 20,480 lines of JSON Lines.
#
# read_json infers the types from a sample (default: sample_size=20480). A later 2.5 becomes 2 without an error.
# With sample_size=-1 it is as written.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet duckdb==2.0.1
"$folder/venv/bin/python" - "$folder" <<'PROGRAM'
import sys
import duckdb

found = {}
for lines in (20_479, 20_480):
    path = f"{sys.argv[1]}/{lines}.jsonl"
    with open(path, "w") as file:
        file.write('{"row":1,"price":1}\n' * lines + '{"row":2,"price":2.5}\n')
    for sample in ("", ", sample_size=-1"):
        rows = duckdb.sql(f"SELECT * FROM read_json('{path}'{sample}) WHERE row = 2")
        found[lines, sample] = rows.fetchall()
        print(f"{lines} lines before{sample or ', default sample'}: {found[lines, sample]}")
print("duckdb", duckdb.__version__)
assert found == {
    (20_479, ""): [(2, 2.5)],
    (20_479, ", sample_size=-1"): [(2, 2.5)],
    (20_480, ""): [(2, 2)],
    (20_480, ", sample_size=-1"): [(2, 2.5)],
}, "this has changed"
PROGRAM
