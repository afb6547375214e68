#!/bin/sh
# pyarrow 26.0.1 reads a column of texts that is written as DELTA_BYTE_ARRAY or DELTA_LENGTH_BYTE_ARRAY, and refuses the
# same column when it is asked to keep it as a dictionary (read_dictionary): "Not yet implemented". PLAIN is read either
# way. So a reader that keeps texts in dictionaries has to look at the encodings of a file first.
#
# Installs the package into a folder that is removed at the end, prints what it does, and fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import pyarrow
import pyarrow.parquet as parquet

print("pyarrow", pyarrow.__version__)
table = pyarrow.table({"url": [f"http://a.test/{row}" for row in range(100)]})
found = {}
for encoding in ("PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
    path = f"{sys.argv[1]}/{encoding}.parquet"
    parquet.write_table(table, path, use_dictionary=False, column_encoding={"url": encoding})
    plain = parquet.read_table(path)["url"].to_pylist() == table["url"].to_pylist()
    try:
        kept = parquet.read_table(path, read_dictionary=["url"])["url"].to_pylist() == table["url"].to_pylist()
        words = ""
    except Exception as error:
        kept, words = None, f"{type(error).__name__}: {error}"
    found[encoding] = plain, kept
    print(f"{encoding}: read {plain}, read as a dictionary {kept} {words}".rstrip())
expected = {"PLAIN": (True, True), "DELTA_BYTE_ARRAY": (True, None), "DELTA_LENGTH_BYTE_ARRAY": (True, None)}
sys.exit(0 if found == expected else "it behaves otherwise now")
PYTHON
