"""The app, which notes in the file $KEPT_NOTES how many looks and readings of photos it keeps:
`python -m tests.kept_page --port PORT`."""

import os
import threading
import time
from pathlib import Path

import app
from vit.inside import insides
from vit.looking import looks


def note() -> None:
    notes = Path(os.environ["KEPT_NOTES"])
    while True:
        new = notes.with_suffix(".new")
        new.write_text(f"{len(looks)} {len(insides)}")
        new.replace(notes)
        time.sleep(0.05)


if __name__ == "__main__":
    threading.Thread(target=note, daemon=True).start()
    app.main()
