"""A catalog of Parquet files in a bucket, and copies of its objects for a reader of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import obstore

from catalogs import ParquetPlace


class BucketPlace(ParquetPlace):
    """The objects that a client of obstore sees, copied to a folder when they are read."""

    def __init__(self, client: Any, folder: Path, address: str = "") -> None:
        """address: of `BucketParts`, for a catalog that this test writes."""
        super().__init__(folder)
        self._client, self._address = client, address

    def store(self) -> Any:
        from outrider.catalog.part_stores import BucketParts

        return BucketParts(self._address)

    def names(self) -> list[str]:
        return sorted(one["path"] for piece in obstore.list(self._client) for one in piece)

    def parts(self) -> list[Path]:
        return [self._copy(name) for name in self.names() if name.startswith("page_content/")]

    def rows(self, table: str) -> list[dict[str, Any]]:
        if table != "page_content":
            self._copy(f"{table}.parquet")
        return super().rows(table)

    def change(self, statement: str) -> None:
        field, number = statement.rpartition("SET ")[2].split(" = ")
        newest = [name for name in self.names() if name.startswith("position/")][-1]
        stored = json.loads(bytes(obstore.get(self._client, newest).bytes()))
        self.put(newest, json.dumps(stored | {field: int(number)}).encode())

    def put(self, name: str, content: bytes) -> None:
        obstore.put(self._client, name, content)

    def _copy(self, name: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(obstore.get(self._client, name).bytes()))
        return path
