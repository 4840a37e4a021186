"""One file from the web: streamed, taken up again where it broke off, checked, and only then there.

What a server says of a file before it sends it is a `Promise`: its size, and with some servers a
checksum. Large model hubs do so, which is how a file can be checked whose checksum nobody knew
beforehand.
"""

import base64
import binascii
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import requests
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema

TIMEOUT = (10, 30)  # seconds to connect, and between two pieces
ATTEMPTS = 6
PIECE = 2**14  # bytes; a break loses the piece that was under way
PAUSE = 0.5  # seconds before the second attempt, then twice as long each time

Progress = Callable[[int, int | None], object]  # (bytes done, bytes in all or None)


class DownloadError(OSError):
    """A file could not be fetched: one sentence that says why and what to do."""


@dataclass(frozen=True)
class Promise:
    """What a server says of a file: bytes in all, checksum as (algorithm, hexadecimal digits), and
    the tag by which it knows whether the file has changed since; None or empty where it does not.
    """

    size: int | None = None
    checksum: tuple[str, str] | None = None
    tag: str = ""


def fetch(
    url: str,
    path: Path,
    what: str,
    limit: int,
    progress: Progress | None = None,
    sha256: str = "",
    size: int | None = None,
) -> str:
    """Fetch `url` to `path`, whole and checked or not at all; returns how it was checked, in words.

    `what` says in messages what is expected there ("weights"), `limit` bounds the bytes. `sha256`
    may be the first digits alone. Without it the checksum is compared that the server tells, if
    any. What has arrived before an interruption, or before giving up, stays beside `path` under
    another name, and the next call goes on from there, if the file has not changed meanwhile.
    Raises DownloadError.
    """
    part, note = (path.with_name(f"{path.name}.{end}") for end in ("part", "tag"))

    def begin(promise: Promise) -> None:
        note.write_text(promise.tag, "utf-8")
        free = shutil.disk_usage(path.parent).free
        if promise.size and promise.size - _size(part) > free:
            raise DownloadError(
                f"{url} takes {promise.size / 1e6:,.0f} MB, but only {free / 1e6:,.0f} are free in "
                f"{path.parent}; make room there."
            )

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tag = note.read_text("utf-8") if part.exists() and note.exists() else ""
        with open(part, "r+b" if tag else "w+b") as file:
            file.seek(0, os.SEEK_END)
            promise = stream(url, file, what, limit, progress, tag, begin)
        checked = _check(part, url, what, promise, sha256, size)
        os.replace(part, path)
        note.unlink(missing_ok=True)
    except DownloadError:
        if not _size(part):  # nothing to go on from
            part.unlink(missing_ok=True)
            note.unlink(missing_ok=True)
        raise
    except OSError as error:
        raise DownloadError(
            f"{path.name} cannot be written to {path.parent} ({error.strerror or error}); make "
            f"room there, or check that you may write there."
        ) from error
    return checked


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check(part: Path, url: str, what: str, promise: Promise, sha256: str, size: int | None) -> str:
    """How the whole file was checked; DownloadError, and no file any more, when it is another."""
    wanted = ("sha256", sha256) if sha256 else promise.checksum
    problem = ""
    with open(part, "rb") as file:
        if file.read(512).lstrip().lower().startswith((b"<!doctype", b"<html")):
            problem = f"{url} sent a web page instead of {what}; perhaps it wants you to sign in."
        elif size is not None and _size(part) != size:
            problem = (
                f"{url} has {_size(part):,} bytes instead of the {size:,} published; it may have "
                f"been replaced, so look for a newer version of this program."
            )
        elif wanted:
            file.seek(0)
            found = hashlib.file_digest(file, wanted[0]).hexdigest()
            if not found.startswith(wanted[1].lower()):
                source = "published" if sha256 else "told by its server"
                problem = (
                    f"{url} did not arrive as it should: its {_NAMES[wanted[0]]} starts with "
                    f"{found[:8]}, and {wanted[1][:8]} is {source}; try again."
                )
    if problem:
        part.unlink()
        raise DownloadError(problem)
    if wanted:
        return f"size and {_NAMES[wanted[0]]} as {'published' if sha256 else 'told by its server'}"
    return "size as told by its server" if promise.size is not None else "nothing to check it by"


_NAMES = {"sha256": "SHA-256", "md5": "MD5"}


def stream(
    url: str,
    file: IO[bytes],
    what: str,
    limit: int,
    progress: Progress | None = None,
    tag: str = "",
    begin: Callable[[Promise], object] | None = None,
) -> Promise:
    """Write `url` into the open file from its position on, which is where an earlier call ended
    (then with the `tag` of that time); after a break go on where it broke, as often as sensible.

    `begin` hears what the server promises each time it starts to send. Raises DownloadError.
    """
    host = urlsplit(url).netloc or url
    promise = Promise()
    with requests.Session() as session:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            headers = {"Accept-Encoding": "identity"}
            if begun := file.tell():
                headers["Range"] = f"bytes={begun}-"
            if begun and tag:
                headers["If-Range"] = tag
            try:
                with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
                    promise = _begin(answer, file, url, what)
                    tag = promise.tag
                    if begin:
                        begin(promise)
                    if file.tell() == promise.size:  # an earlier call got all of it
                        return promise
                    for piece in answer.iter_content(PIECE):
                        file.write(piece)
                        if file.tell() > limit:
                            raise DownloadError(f"{url} is far too large to be {what}.")
                        if progress:
                            progress(file.tell(), promise.size)
                if promise.size is None or file.tell() == promise.size:
                    return promise
            except (InvalidSchema, InvalidURL, MissingSchema):
                raise DownloadError(f"{url} is no address on the web; check it.") from None
            except requests.RequestException:
                if attempt and not file.tell():  # twice not a byte: waiting longer is no use
                    break
    if not file.tell():
        raise DownloadError(
            f"{host} cannot be reached, or is overloaded; check the network and try again."
        )
    of = f" of {promise.size / 1e6:.1f}" if promise.size else ""
    raise DownloadError(
        f"{host} broke off after {file.tell() / 1e6:.1f}{of} MB, {ATTEMPTS} times; try again later."
    )


def _begin(answer: requests.Response, file: IO[bytes], url: str, what: str) -> Promise:
    """Check an answer's head, and set the file to where its body belongs."""
    if answer.status_code >= 500 or answer.status_code in (408, 429):
        raise requests.HTTPError(answer.reason)  # a passing trouble
    if answer.status_code == 416:
        if answer.headers.get("Content-Range", "") == f"bytes */{file.tell()}":
            return _promise(answer, file.tell())  # all of it is here already
        file.seek(0)  # what we have is no beginning of this file
        file.truncate()
        raise requests.HTTPError(answer.reason)
    if answer.status_code not in (200, 206):
        raise DownloadError(
            f"{url} answered {answer.status_code} ({answer.reason}); check the address, or look "
            f"for a newer version of this program if it came with it."
        )
    if "html" in answer.headers.get("Content-Type", ""):
        raise DownloadError(
            f"{url} sent a web page instead of {what}; "
            "perhaps this network wants you to sign in first."
        )
    if answer.status_code == 200:  # from the start, asked for or not
        file.seek(0)
        file.truncate()
        length = answer.headers.get("Content-Length", "")
        return _promise(answer, int(length) if length.isdecimal() else None)
    place = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
    if place is None or int(place[1]) != file.tell():
        raise DownloadError(f"{url} sent another part of the file than asked for; try again.")
    return _promise(answer, int(place[2]) if place[2] != "*" else None)


def _promise(answer: requests.Response, size: int | None) -> Promise:
    tag = answer.headers.get("ETag", "")
    if not tag or tag.startswith("W/"):  # a weak tag promises no equal bytes
        tag = answer.headers.get("Last-Modified", "")
    return Promise(size, _checksum(answer), tag)


def _checksum(answer: requests.Response) -> tuple[str, str] | None:
    """What a model hub tells of a large file, before it leads elsewhere to fetch it (SHA-256), and
    what Google's storage tells (MD5)."""
    for each in (*answer.history, answer):
        linked = each.headers.get("X-Linked-ETag", "").strip('"')
        if re.fullmatch(r"[0-9a-f]{64}", linked):
            return "sha256", linked
        if told := re.search(r"\bmd5=([\w+/]{22}==)", each.headers.get("x-goog-hash", "")):
            try:
                return "md5", base64.b64decode(told[1], validate=True).hex()
            except binascii.Error:
                pass
    return None
