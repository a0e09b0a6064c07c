"""The output of a batch: JSON Lines, one record appended and flushed per row, so that a batch that was killed goes on
where it was.

While it runs the file is in the order in which rows ended. At the end it holds exactly one record for each row.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from filelock import FileLock, Timeout

from sglspec.batches.source import Row

_BEGIN = b'{"row": '
"""How every record begins: a file whose torn last line begins otherwise is not ours."""


class NotAJournal(ValueError):
    """The file holds something else, or another process writes it."""


class Journal:
    """Open with `with`. Remembers of each record its place in the file, not what it says."""

    def __init__(self, path: Path, retry_failed: bool = False, fresh: bool = False) -> None:
        """retry_failed: rows that did not succeed count as not done. fresh: no row does; what is there goes."""
        self._path = path
        self._retry = retry_failed
        self._fresh = fresh
        self._lock = FileLock(path.parent / f".{path.name}.lock")
        self._file: IO[bytes] | None = None
        self._places: dict[int, int] = {}
        """Key → index in the three arrays: where the record stands, its row, whether it succeeded."""
        self._offsets = array("q")
        self._numbers = array("q")
        self._good = bytearray()
        self._asked: dict[int, int] = {}
        """Number of a row of this batch → its key."""
        self.kept = self.kept_failed = 0
        """Rows that were done before, and those of them that had not succeeded."""
        self._records = 0
        """In the file, those of rows that are to be run again included."""

    def __enter__(self) -> Journal:
        """Raises NotAJournal, OSError. A torn last line is cut off. What is no output of a batch is never touched."""
        # a folder cannot be written, and devices and pipes may have no end
        if self._path.exists() and not self._path.is_file():
            raise NotAJournal("it is no regular file")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise NotAJournal("another process writes it") from None
        try:
            self._file = self._path.open("a+b")
            self._scan(self._file)
            if self._fresh:
                self._forget(self._file)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        self._lock.release()

    def left(self, rows: Iterable[Row], done: Callable[[Row, dict[str, Any]], None] | None = None) -> Iterator[Row]:
        """The rows that are not done. All that are asked for make up the batch when it ends (`finish`). done: called
        with each of the others, and its record."""
        for row in rows:
            key = int(row.key, 16)
            self._asked[row.number] = key
            place = self._places.get(key)
            if place is None or (self._retry and not self._good[place]):
                yield row
            else:
                self.kept += 1
                self.kept_failed += not self._good[place]
                if done is not None:
                    file = self._opened()
                    file.seek(self._offsets[place])
                    done(row, json.loads(file.readline()))

    def append(self, record: dict[str, Any]) -> None:
        """Write a record through to the operating system: a process that is killed loses none."""
        file = self._opened()
        offset = file.seek(0, os.SEEK_END)
        file.write(_line(record))
        file.flush()
        self._add(record, offset)

    def finish(self, in_order: bool, partial: bool = False) -> None:
        """Leave one record for each row of the batch, and no other. Without `in_order` records stay
        in the order in which rows ended. The file is replaced at once or not at all.

        partial: there are more rows than the batch has; records of others stay.
        """
        file = self._opened()
        rows = [(self._places[key], number) for number, key in self._asked.items()]
        if partial:
            rows += self._of_others()
        rows.sort(key=lambda row: row[1] if in_order else self._offsets[row[0]])
        offsets = [self._offsets[index] for index, _ in rows]
        numbers_agree = all(self._numbers[index] == number for index, number in rows)
        if offsets == sorted(offsets) and len(offsets) == self._records and numbers_agree:
            os.fsync(file.fileno())
            return
        new = self._path.with_name(f".{self._path.name}.new")
        with new.open("wb") as out:
            for index, number in rows:
                file.seek(self._offsets[index])
                record = json.loads(file.readline())
                out.write(_line(record | {"row": number}))
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._path)

    def _of_others(self) -> Iterator[tuple[int, int]]:
        """Records of rows that this batch was not asked for. One with the number of a row that it has is out of date:
        the row has been changed since."""
        keys = set(self._asked.values())
        others = {self._numbers[place]: place for key, place in self._places.items() if key not in keys}
        return ((place, number) for number, place in others.items() if number not in self._asked)

    def _forget(self, file: IO[bytes]) -> None:
        file.truncate(0)
        self._places.clear()
        del self._offsets[:], self._numbers[:], self._good[:]
        self._records = 0

    def _opened(self) -> IO[bytes]:
        assert self._file is not None
        return self._file

    def _scan(self, file: IO[bytes]) -> None:
        file.seek(0)
        offset = 0
        for line in file:
            if not line.endswith(b"\n"):
                self._cut(file, offset, line)
                return
            record = _record(line)
            self._add(record, offset)
            offset += len(line)

    def _cut(self, file: IO[bytes], offset: int, rest: bytes) -> None:
        """Cut off a record that was being written when the process was killed."""
        if rest[: len(_BEGIN)] != _BEGIN[: len(rest)]:
            raise NotAJournal("it holds something else")
        file.truncate(offset)

    def _add(self, record: dict[str, Any], offset: int) -> None:
        self._records += 1
        self._places[int(record["key"], 16)] = len(self._offsets)
        self._offsets.append(offset)
        self._numbers.append(record["row"])
        self._good.append(record["status"] == "succeeded")


def _line(record: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        return f"{text}\n".encode()
    except ValueError:  # a number that is not finite, or half a pair of surrogates
        return (json.dumps(_plain(record)) + "\n").encode()


def _plain(value: Any) -> Any:
    """The value with null for numbers that JSON cannot hold."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, Any]", value).items()}
    return [_plain(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _record(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if isinstance(record["row"], int) and isinstance(record["status"], str) and int(record["key"], 16) >= 0:
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise NotAJournal("it holds something else")
