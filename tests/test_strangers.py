"""A stranger at an app that stands open to the internet, as a Space does: everything that a program
can send, not only what the page sends."""

import base64
import io
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from gradio_client import Client, handle_file
from gradio_client.utils import QueueError
from PIL import Image
from serving import ROOT, Server, jpeg, save_unsure, serving
from session import API, Refused, Session, bring, file, teach
from small import tiny_start

from vit.collect import new_key
from vit.runfolder import kill
from vit.runs import Runs
from vit.ui.temporary import BROKEN_OFF, DAY, YOUNG, Temporary

TOKEN = "the owner's own token"
SECRET = (201, 77, 33)  # the colour of a photo that no visitor has sent
TEMP_MB = 4


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The app as on a Space, with small limits."""
    folder = tmp_path_factory.mktemp("space")
    home = folder / "home"
    save_unsure(home)
    tiny_start(home / "checkpoints" / "tiny.safetensors")
    Image.new("RGB", (64, 64), SECRET).save(home / "secret.png")
    (home / "secret.txt").write_text("root:x:secret")
    start = serving(folder, home)
    start.environment |= {
        "SPACE_ID": "someone/food",
        "VIT_OWNER_TOKEN": TOKEN,
        "VIT_TEMP_MB": str(TEMP_MB),
        "VIT_ZIP_MB": "2",
        "VIT_RUNS_EACH": "1",
        "VIT_RUN_THREADS": "1",
    }
    with start as server:
        yield server
        for run in Runs(home / "runs").all():
            kill(run.folder)
    ours = rf'File "{re.escape(str(ROOT))}/(app\.py|vit/)'
    assert not re.search(ours, log := server.log.read_text()), log[-3000:]


@pytest.fixture
def stranger(space: Server) -> Iterator[Session]:
    with Session(space.url) as session:
        yield session


class Listener(HTTPServer):
    """A machine that the app could reach, if somebody made it; notes what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.asked: list[str] = []


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Listener)
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def dishes(each: int = 6) -> bytes:
    """A zip of class folders."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(each):
            for name, colour in (("soup", "tomato"), ("salad", "green")):
                archive.writestr(f"{name}/{number}.jpg", jpeg(48 + number, 40, colour))
    return data.getvalue()


# --- Files and addresses ------------------------------------------------------------------------


def secrets_of(space: Server) -> list[str]:
    here = str(space.home)
    return ["/etc/passwd", f"{here}/secret.png", f"{here}/secret.txt", str(ROOT / "app.py")]


def test_no_route_gives_a_file_that_was_not_meant(space: Server, stranger: Session) -> None:
    sent = jpeg(64, 64)
    uploaded = stranger.upload(("a.jpg", sent))[0]["path"]
    assert stranger.http.get(f"{API}/file={uploaded}").content == sent
    above = str(Path(uploaded).parent)
    paths = [
        *secrets_of(space),
        f"{space.home}/checkpoints/tiny.safetensors",
        str(ROOT / "vit" / "checkpoints" / "food101.safetensors"),
        "app.py",
        "README.md",
        "/proc/self/environ",
        f"{above}/../../../home/secret.png",
        f"{above}/..%2f..%2f..%2fhome/secret.png",
        f"{above}/../../%2e%2e/home/secret.png",
        f"/{above}//../../../home/secret.png",
        above,
    ]
    for path in paths:
        for route in (
            f"{API}/file=",
            "file=",
            f"{API}/file/",
            f"{API}/stream/",
            "static/",
            "assets/",
        ):
            answer = stranger.http.get(route + path)
            assert answer.status_code in (400, 403, 404, 405, 422), (route, path)
            assert b"root:x" not in answer.content


@pytest.mark.parametrize(
    "route",
    [
        "file=http://{there}/",
        "file=HTTP://{there}/",
        "file=%68ttp://{there}/",
        "file= http://{there}",
    ]
    + ["proxy=http://{there}/", "proxy=https://someone-space.hf.space/x", "file/http://{there}/"]
    + ["deep_link?session_hash=x", "component_server", "process_recording", "vibe-code", "runs"],
)
def test_routes_that_the_page_has_no_use_for_are_closed(
    space: Server, stranger: Session, listener: Listener, route: str
) -> None:
    url = f"{API}/" + route.format(there=f"127.0.0.1:{listener.server_port}")
    for method in ("GET", "POST", "HEAD"):
        answer = stranger.http.request(method, url)
        assert answer.status_code in (403, 404), (method, answer.status_code)
    assert listener.asked == []


NAMED = {
    "classify": [5, None, ""],
    "classify_many": [5, None, ""],
    "patches": [1, 1, None, ""],
    "attention": ["relevance", None, 1, None, "looks at", "", None, ""],
    "explain": ["", "relevance", None, 1, None, False, None, ""],
    "tour": ["softmax", None, ""],
}


@pytest.mark.parametrize("endpoint", NAMED)
def test_named_endpoints_take_uploads_alone(
    space: Server, stranger: Session, listener: Listener, endpoint: str
) -> None:
    function = stranger.named(endpoint)
    address = f"http://127.0.0.1:{listener.server_port}/photo.jpg"
    many = endpoint == "classify_many"
    sent: list[object] = [None, [], 5, {"url": address}]
    sent += [file("http://example.com/a.jpg"), file("x", url=address)]
    sent += [file(f"{space.url}{API}/file=/etc/passwd"), file(f"http://x/{API}/file=../app.py")]
    for path in (*secrets_of(space), address):
        sent += [path, {"path": path}, file(path), file(path, url=address), file(path, url=path)]
    for photo in sent:
        with pytest.raises(Refused) as refused:
            stranger.call(function, [[photo] if many else photo, *NAMED[endpoint]])
        assert "probab" not in str(refused.value) and "root:x" not in str(refused.value)
    assert listener.asked == []
    good = stranger.upload(("a.jpg", jpeg(64, 64)))
    assert stranger.call(function, [good if many else good[0], *NAMED[endpoint]])
    good[0]["path"] = f"{space.url}{API}/file={good[0]['path']}"  # of an upload, as the web has it
    assert stranger.call(function, [good if many else good[0], *NAMED[endpoint]])


def hostile(space: Server) -> list[object]:
    """What may stand for any input of a function."""
    secret = f"{space.home}/secret.png"
    return [
        file(secret),
        [file(secret), file("/etc/passwd")],
        secret,
        [{"path": secret, "name": "x"}],
        file("http://169.254.169.254/latest/meta-data"),
        "../../../../etc/passwd",
        -(10**30),
        {"a": {"b": [secret]}},
    ]


CLICKED = ["files", "run", "runs", "patch", "which", "photo", "layer", "head", "row", "column"]
CLICKED += ["example", "said", "name", "stop"]


def shows_a_secret(text: str) -> bool:
    if "root:x" in text or "import os" in text:
        return True
    for picture in re.findall(r"data:image/\w+;base64,([\w+/=]+)", text):
        with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
            colour = image.convert("RGB").resize((1, 1)).getpixel((0, 0))
            if all(abs(a - b) < 6 for a, b in zip(colour, SECRET, strict=True)):  # pyright: ignore[reportArgumentType]
                return True
    return False


def test_unnamed_functions_reach_nothing_either(space: Server, stranger: Session) -> None:
    """Private functions can be called by number, also without the page: every one is, with paths
    and addresses in the place of every input and of what a click brings along."""
    turns, called, runs = itertools.cycle(hostile(space)), 0, Runs(space.home / "runs")
    before = [run.id for run in runs.all()]
    for id, function in stranger.functions.items():
        if not function["backend_fn"] or function["api_name"] in ("fetch", "take_course"):
            continue  # downloads from nowhere, which take their time
        first = [file(f"{space.home}/secret.png")] * len(function["inputs"])
        for inputs in (first, [next(turns) for _ in function["inputs"]]):
            value = next(turns)
            event = dict.fromkeys(CLICKED, value)
            try:
                text = json.dumps(stranger.call(id, inputs, event | {"what": "delete"}))
            except Refused as refused:
                text = str(refused)
            assert not shows_a_secret(text), (function["api_name"], inputs, text[:500])
            called += 1
    assert called > 150
    photo = stranger.upload(("a.jpg", jpeg(64, 64)))[0]  # and the app is as before
    assert stranger.call(stranger.named("classify"), [photo, 5, None, ""])
    assert [run.id for run in runs.all()] == before


# --- Runs -----------------------------------------------------------------------------------------


def wait(condition, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def test_a_run_is_its_owners_alone(space: Server) -> None:
    runs, key = Runs(space.home / "runs"), new_key()
    with Session(space.url) as owner, Session(space.url) as other:
        described = owner.http.get(f"{API}/info").json()
        assert set(described["named_endpoints"]) == {f"/{name}" for name in NAMED}
        assert described["unnamed_endpoints"] == {}
        with pytest.raises(Refused):  # in words that an old client may send
            other.http.post(f"{API}/run/begin", json={"data": [], "session_hash": other.hash})
            other.call(other.on("Start", "click"), [None])
        teach(owner, key, dishes(), "mine", epochs="5000")
        (run,) = runs.all()
        wait(lambda: runs.get(run.id).told.at > 2)

        # somebody who knows everything but the key
        key_field = other.browser_key()
        for wrong in (new_key(), "", run.request.owner, key.upper(), [key], {"key": key}, key[:-1]):
            other.values[key_field] = wrong
            shown = json.dumps(other.run(other.on("run-table", "click"), {"run": run.id}))
            assert "mine" in shown and 'class=\\"log\\"' not in shown
            said = [
                other.run(other.on("Stop and keep the best", "click")),
                other.run(other.on("Go on", "click")),
                other.run(other.named("do_rename"), changes={"run-rename": "stolen"}),
                other.run(other.named("do_delete")),
                other.run(other.on("Download model", "click")),
            ]
            for answer in said:
                answer = json.dumps(answer)
                assert re.search("Only who started mine|no longer|not interrupted", answer), answer
        assert runs.get(run.id).state == "running" and runs.get(run.id).title == "mine"
        # a path is no run
        for id in (f"../runs/{run.id}", str(run.folder), "..", "/etc", ["x"], None):
            assert "Stop and keep" not in json.dumps(
                other.run(other.on("run-table", "click"), {"run": id})
            )

        # one run each, for the one who holds the key as for anybody
        with Session(space.url) as again:
            said = json.dumps(teach(again, key, dishes(), "second", epochs="5"))
            assert "You have 1 run waiting or under way" in said
        assert len(runs.all()) == 1
        with Session(space.url) as nobody:
            bring(nobody, "", dishes())
            assert "reload it" in nobody.heard
            assert "two dishes or more" in json.dumps(nobody.run(nobody.on("Start", "click")))
        assert len(runs.all()) == 1

        # the owner, from another page
        with Session(space.url) as later:
            later.values[key_field] = key
            later.run(later.on("run-table", "click"), {"run": run.id})
            later.run(later.on("Stop and keep the best", "click"))
        wait(lambda: runs.get(run.id).over)
        assert runs.get(run.id).state == "stopped"


def test_published_models_are_the_owners_to_fetch_on_a_space(space: Server) -> None:
    with Session(space.url) as anybody:
        answer = anybody.call(anybody.named("fetched"), ["augreg-ti16", None])
        assert "Only whoever runs this page" in json.dumps(answer)
    with Session(space.url, f"?owner={quote(TOKEN)}") as owner:
        answer = owner.call(owner.named("fetched"), ["augreg-ti16", None])
        assert "cannot be reached" in json.dumps(answer)
    with Session(space.url, "?owner=guessed") as anybody:
        answer = anybody.call(anybody.named("fetched"), ["augreg-ti16", None])
        assert "Only whoever runs this page" in json.dumps(answer)


# --- How much -------------------------------------------------------------------------------------


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_uploads_are_bounded_one_by_one_and_together(space: Server, stranger: Session) -> None:
    def send(*files: tuple[str, bytes]):
        return stranger.http.post(f"{API}/upload", files=[("files", each) for each in files])

    folder = space.log.parent / "uploads"
    assert send(("large.jpg", bytes(50 * 2**20 + 1))).status_code == 413
    body = b"x" * (TEMP_MB * 1_000_000)
    for headers in ({}, {"content-type": "multipart/form-data; boundary=b"}):
        answer = stranger.http.post(f"{API}/upload", content=iter([body] * 3), headers=headers)
        assert answer.status_code in (400, 413)  # its size is not told beforehand
    answers = [send((f"{n}.jpg", os.urandom(900_000))) for n in range(6)]
    assert {answer.status_code for answer in answers} == {200, 503}
    assert answers[0].status_code == 200 and "no room" in answers[-1].text
    assert size_of(folder) <= TEMP_MB * 1e6
    old = time.time() - YOUNG - 1
    for path in folder.rglob("*.jpg"):
        os.utime(path, (old, old))
    assert send(("now.jpg", jpeg())).status_code == 200  # the oldest made room
    assert size_of(folder) <= TEMP_MB * 1e6


def test_a_call_is_bounded(space: Server, stranger: Session) -> None:
    answer = stranger.join(stranger.named("classify"), ["x" * 5_000_000, 5, None, ""])
    assert answer.status_code == 413 and "more than the page takes" in answer.json()["detail"]
    deep: object = "x"
    for _ in range(3000):
        deep = [deep]
    with pytest.raises((Refused, RecursionError)):
        stranger.call(stranger.named("classify"), [deep, 5, None, ""])
    # Nobody goes round the queue.
    photo = stranger.upload(("a.jpg", jpeg(64, 64)))[0]
    body = {"data": [photo, 5, None, ""], "fn_index": stranger.named("classify")}
    assert stranger.http.post(f"{API}/run/classify", json=body).status_code == 404
    assert stranger.http.post(f"{API}/api/classify", json=body).status_code == 404


def test_a_full_queue_says_so_and_recovers(
    space: Server, stranger: Session, tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    client = Client(space.url, verbose=False)
    photo = stranger.upload(("a.jpg", jpeg()))[0]
    slow = [photo, "", "relevance", None, 1, None, True, None, "food101"]
    explain, answers = stranger.named("explain"), []
    try:
        while len(answers) < 300:
            answers.append(stranger.join(explain, slow))
            if answers[-1].status_code != 200:
                break
        assert answers[-1].status_code == 503 and "full" in answers[-1].json()["detail"]
        assert len(answers) > 60
        with pytest.raises(QueueError, match="full! Please try again"):
            client.predict(handle_file(str(tmp_path / "a.jpg")), api_name="/classify")
    finally:
        for answer in answers[:-1]:
            event = {"session_hash": stranger.hash, "fn_index": explain}
            event["event_id"] = answer.json()["event_id"]
            stranger.http.post(f"{API}/cancel", json=event)
    answer = client.predict(
        handle_file(str(tmp_path / "a.jpg")), checkpoint="tiny", api_name="/classify"
    )
    assert answer["labels"]
    client.close()


def test_photos_at_once_are_bounded_for_a_program_too(space: Server, stranger: Session) -> None:
    photo = stranger.upload(("a.jpg", jpeg(64, 64)))[0]
    with pytest.raises(Refused, match="13 photos are too many at once; choose up to 12"):
        stranger.call(stranger.named("classify_many"), [[photo] * 13, 5, None, ""])


# --- Temporary files ----------------------------------------------------------------------------


def test_temporary_files_go_by_age_and_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_TEMP_MB", "4")
    monkeypatch.setenv("VIT_ZIP_MB", "1")
    now, known = time.time(), {str(tmp_path / "d1" / "f")}
    temporary = Temporary(tmp_path, [known])

    def put(name: str, age: float, size: int = 1000) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size))
        os.utime(path, (now - age, now - age))
        return path

    old, new = put("d1/f", DAY + 1), put("d2/f", 10)
    broken, under_way = put("tmpabc", BROKEN_OFF + 1), put("tmpdef", 5)
    future = put("d3/f", -10 * DAY)  # the clock has been set back since
    model = put("model", 9 * DAY)  # of the user's, who fetches a copy just now
    os.rename(model, away := tmp_path.with_name("model"))
    (tmp_path / "d4").mkdir()
    os.link(away, tmp_path / "d4" / "f")
    assert temporary.sweep(now=now) == 3000
    assert (tmp_path / "d4" / "f").exists()
    os.utime(tmp_path / "d4", (now - DAY - 1, now - DAY - 1))
    assert temporary.sweep(now=now) == 3000
    assert not (tmp_path / "d4" / "f").exists() and away.stat().st_mtime < now - 8 * DAY
    assert not old.exists() and not broken.exists() and known == set()
    assert new.exists() and under_way.exists() and abs(future.stat().st_mtime - now) < 1
    parts = [put(f"p{age}/f", age, 1_000_000) for age in (500, 400, 300, 200, 10)]
    assert temporary.sweep(now=now) <= 4e6
    assert [path.exists() for path in parts] == [False, False, True, True, True]
    assert temporary.reserve(900_000) and not temporary.reserve(3_900_000)
    temporary.release(900_000)
    assert [path.exists() for path in parts] == [False, False, False, False, True]
    for folder in tmp_path.iterdir():
        if folder.is_dir():
            os.utime(folder, (now - DAY, now - DAY))
    temporary.sweep(now=now)
    assert {p.name for p in tmp_path.iterdir()} == {"d2", "d3", "p10", "tmpdef"}


# --- Settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("VIT_ZIP_MB", "much", "VIT_ZIP_MB must be a whole number above 0, not 'much'."),
        ("VIT_MAX_PHOTOS", "2.5", "VIT_MAX_PHOTOS must be a whole number above 0, not '2.5'."),
        ("VIT_MAX_MEGAPIXELS", "-1", "VIT_MAX_MEGAPIXELS must be a number above 0, not '-1'."),
        ("VIT_KEEP_DAYS", "nan", "VIT_KEEP_DAYS must be a number above 0, not 'nan'."),
        ("VIT_RUN_MINUTES", "inf", "VIT_RUN_MINUTES must be a number above 0, not 'inf'."),
        ("VIT_PULL", "nobody", "VIT_PULL must be everyone or owner, not 'nobody'."),
        ("VIT_MODELS_URL", "ftp://x", "VIT_MODELS_URL must be an address that begins with http"),
        ("VIT_HOME", __file__, "VIT_HOME must be a folder"),
        ("GRADIO_SERVER_PORT", "web", "GRADIO_SERVER_PORT must be a port"),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(variable: str, value: str, said: str) -> None:
    environment = os.environ | {variable: value}
    command = [sys.executable, "app.py", "--help"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_every_setting_is_in_the_readme() -> None:
    from vit.settings import ADDRESSES, CHOICES, NUMBERS

    readme = (ROOT / "README.md").read_text("utf-8")
    for name in (*NUMBERS, *CHOICES, *ADDRESSES, "VIT_HOME", "VIT_OWNER_TOKEN"):
        assert f"`{name}`" in readme, name
