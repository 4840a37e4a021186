"""The named endpoints, called over HTTP the way a program calls them, and the words of the page."""

import csv
import io
import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gradio as gr
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image
from serving import BAD_PHOTOS, Server, jpeg

from vit import checkpoint
from vit.card import Card, CheckpointError
from vit.classifier import Classifier
from vit.images import PhotoError, Preprocess
from vit.metrics import Count
from vit.model import ViT, ViTConfig
from vit.tour import STOPS
from vit.ui import examples as examples_module
from vit.ui.api import classify
from vit.ui.classify import empty_html, result_html
from vit.ui.files import keep_file
from vit.ui.header import facts_html, find, listing
from vit.ui.many import csv_text, plain_cell
from vit.ui.words import percent

pytest_plugins = ["serving"]

BUNDLED = ["food101", "pizza-steak-sushi"]  # the default first


@pytest.fixture(scope="module")
def client(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    started = Client(server.url, verbose=False, download_files=str(tmp_path_factory.mktemp("got")))
    yield started
    started.close()


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    path.write_bytes(jpeg(400, 300))
    return path


def raw_call(server: Server, endpoint: str, data: list) -> str:
    """The event stream of a call whose payload no client has touched."""
    url = f"{server.url}gradio_api/call/{endpoint}"
    body = json.dumps({"data": data}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        event = json.load(answer)["event_id"]
    with urllib.request.urlopen(f"{url}/{event}") as stream:
        return stream.read().decode()


def test_classify(client: Client, shared_data: Path) -> None:
    path = shared_data / "pizza_steak_sushi" / "test" / "pizza" / "1152100.jpg"
    answer = client.predict(handle_file(str(path)), api_name="/classify")
    assert answer["labels"][0] == "Pizza"
    assert answer["classes"][0] == "pizza"
    assert answer["probabilities"] == sorted(answer["probabilities"], reverse=True)
    assert 0 < sum(answer["probabilities"]) <= 1 + 1e-4
    assert answer["checkpoint"] == BUNDLED[0]
    assert answer["milliseconds"] > 0
    assert answer["unsure"] is False
    width, height = answer["photo_size"]
    left, top, right, bottom = answer["box"]
    assert 0 <= left < right <= width and 0 <= top < bottom <= height


def test_settings(client: Client, photo: Path) -> None:
    answer = client.predict(
        handle_file(str(photo)),
        top=1,
        fit="letterbox",
        checkpoint="sure-of-nothing",
        api_name="/classify",
    )
    assert len(answer["labels"]) == 1
    assert answer["unsure"] is True
    assert answer["checkpoint"] == "sure-of-nothing"
    left, top, right, bottom = answer["box"]
    assert left <= 0 and right >= 400 and bottom - top >= 400  # bordered to a square


@pytest.mark.parametrize("kind", BAD_PHOTOS)
def test_bad_photo(client: Client, photo: Path, tmp_path: Path, kind: str) -> None:
    name, _, make = BAD_PHOTOS[kind]
    bad = tmp_path / name
    bad.write_bytes(make())
    with pytest.raises(AppError, match=r"^\S.*[.]$") as caught:
        client.predict(handle_file(str(bad)), api_name="/classify")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert client.predict(handle_file(str(photo)), api_name="/classify")["labels"]


def test_classify_many_keeps_order_and_goes_on(client: Client, photo: Path, tmp_path: Path) -> None:
    bad = tmp_path / "notes.jpg"
    bad.write_bytes(b"not a photo")
    files = [handle_file(str(path)) for path in (photo, bad, photo)]
    answers = client.predict(files, top=2, api_name="/classify_many")
    assert [answer["file"] for answer in answers] == ["photo.jpg", "notes.jpg", "photo.jpg"]
    assert [("problem" in answer) for answer in answers] == [False, True, False]
    first, _, last = answers
    assert len(first["dishes"]["labels"]) == 2
    assert first["dishes"]["probabilities"] == pytest.approx(last["dishes"]["probabilities"])


def test_too_many(client: Client, photo: Path) -> None:
    with pytest.raises(AppError, match="13 photos are too many at once; choose up to 12"):
        client.predict([handle_file(str(photo))] * 13, api_name="/classify_many")


@pytest.mark.parametrize(
    "name",
    ["no-such", "../checkpoints/sure-of-nothing", "/etc/passwd", "sure-of-nothing.safetensors"],
)
def test_only_listed_checkpoints(client: Client, photo: Path, name: str) -> None:
    for choice in (name, *([str(Path(name).resolve())] if "/" in name else [])):
        with pytest.raises(AppError, match=f"no checkpoint of that name.*{BUNDLED[0]}"):
            client.predict(handle_file(str(photo)), checkpoint=choice, api_name="/classify")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top": 0}, "top must be a whole number above 0"),
        ({"top": "3"}, "top must be a whole number above 0"),
        ({"fit": "stretch"}, 'fit must be "crop", "letterbox" or None'),
    ],
)
def test_bad_settings(client: Client, photo: Path, settings: dict, message: str) -> None:
    with pytest.raises(AppError, match=message):
        client.predict(handle_file(str(photo)), **settings, api_name="/classify")


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("endpoint", ["classify", "classify_many"])
def test_no_other_file_of_the_machine(server: Server, endpoint: str, marked: bool) -> None:
    """A path in place of an upload is refused, whether or not it is dressed as a file."""
    example = next((Path(__file__).parents[1] / "examples").glob("*.jpg"))
    for path in (str(example), "/etc/passwd"):
        file: object = {"path": path, "meta": {"_type": "gradio.FileData"}} if marked else path
        photo = [file] if endpoint == "classify_many" else file
        stream = raw_call(server, endpoint, [photo, 5, None, ""])
        assert "event: error" in stream
        assert "probabilities" not in stream


def test_two_at_once(server: Server, photo: Path) -> None:
    """Two clients asking different checkpoints at the same time get their own answers."""

    def ask(name: str) -> list[str]:
        client = Client(server.url, verbose=False)
        try:
            return [
                client.predict(handle_file(str(photo)), checkpoint=name, api_name="/classify")[
                    "checkpoint"
                ]
                for _ in range(4)
            ]
        finally:
            client.close()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ask, [BUNDLED[0], "sure-of-nothing"])
    assert first == [BUNDLED[0]] * 4
    assert second == ["sure-of-nothing"] * 4


ENDPOINTS = {"/classify", "/classify_many", "/patches", "/attention", "/explain", "/tour"}


def described(server: Server) -> dict:
    """What the API page shows, by endpoint."""
    with urllib.request.urlopen(f"{server.url}gradio_api/info") as answer:
        return json.load(answer)["named_endpoints"]


def test_only_the_named_endpoints_are_public(client: Client, server: Server) -> None:
    assert set(described(server)) == ENDPOINTS
    known = client.view_api(return_format="dict", print_info=False)
    assert isinstance(known, dict)
    assert set(known["named_endpoints"]) == ENDPOINTS and known["unnamed_endpoints"] == {}
    names = [p["parameter_name"] for p in known["named_endpoints"]["/classify"]["parameters"]]
    assert names == ["photo", "top", "fit", "checkpoint"]


@pytest.mark.parametrize("name", sorted(ENDPOINTS))
def test_the_api_page_is_whole_and_its_example_works(
    server: Server, client: Client, photo: Path, name: str
) -> None:
    endpoint = described(server)[name]
    assert endpoint["description"].endswith((".", "?")) and "?" in endpoint["description"]
    (result,) = endpoint["returns"]
    assert result["label"] == "result" and len(result["python_type"]["description"]) > 20
    keys = set(result["type"].get("properties", {})) or {"file", "dishes", "problem"}
    for parameter in endpoint["parameters"]:
        assert parameter["label"] == parameter["parameter_name"]
        assert parameter["python_type"]["description"].endswith(".")
    example: dict = {p["parameter_name"]: p["example_input"] for p in endpoint["parameters"]}
    first, file = next(iter(example)), handle_file(str(photo))
    example |= {first: [file] if first == "photos" else file}
    answer = client.predict(**example, api_name=name)
    assert set(answer[0] if isinstance(answer, list) else answer) <= keys


def test_the_tour_over_the_api(client: Client, photo: Path) -> None:
    whole = client.predict(handle_file(str(photo)), api_name="/tour")
    assert [each["stop"] for each in whole["stops"]] == [each.key for each in STOPS]
    assert whole["checkpoint"] == BUNDLED[0]
    one = client.predict(handle_file(str(photo)), stop="softmax", api_name="/tour")
    assert one["stops"] == [each for each in whole["stops"] if each["stop"] == "softmax"]
    assert "Softmax" in one["stops"][0]["markdown"] and "$$" in one["stops"][0]["markdown"]
    with pytest.raises(AppError, match="stop must be empty or one of photos, crop"):
        client.predict(handle_file(str(photo)), stop="lunch", api_name="/tour")


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "< 1 %"), (0.009, "< 1 %"), (0.01, "1 %"), (0.944, "94 %"), (0.994, "99 %")]
    + [(0.995, "> 99 %"), (1.0, "> 99 %")],
)
def test_percent(share: float, said: str) -> None:
    assert percent(share) == said


def test_table_is_safe_in_a_spreadsheet_and_keeps_order() -> None:
    names = ["b.jpg", "=1+1.jpg", "  @sum.jpg", 'a,"b".jpg']
    answers = [PhotoError("b.jpg is empty; choose a photo.")] * 4
    text = csv_text(names, answers, "mine")
    assert {len(row) for row in csv.reader(io.StringIO(text))} == {6}
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["checkpoint"] for row in rows} == {"mine"}
    assert [row["file"] for row in rows] == ["b.jpg", "'=1+1.jpg", "'  @sum.jpg", 'a,"b".jpg']
    assert {row["problem"] for row in rows} == {"b.jpg is empty; choose a photo."}
    for start in "=+-@＝":
        assert plain_cell(f"{start}x") == f"'{start}x"
        # where a comma marks decimals, cells end at semicolons
        assert plain_cell(f"a; {start}x;{start}y") == f"a;' {start}x;'{start}y"
    for sign in "\t\r\n\0":
        assert plain_cell(f"{sign}=x") == "?=x"
    assert plain_cell("") == ""


def test_without_a_checkpoint_the_page_says_what_to_do(
    vit_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "BUNDLED", tmp_path)
    picker, facts = listing()
    assert picker["choices"] == []
    assert "python train.py" in facts
    assert "python train.py" in empty_html(None)
    with pytest.raises(CheckpointError, match="train.py"):
        find(None)


def test_a_backbone_says_that_it_knows_no_dishes(vit_home: Path) -> None:
    config = ViTConfig(
        image_size=(16, 16), patch_size=(16, 16), width=8, depth=1, heads=1, mlp_width=8, classes=2
    )
    card = Card(config, Preprocess(size=(16, 16)), ("a", "b"), trained_head=False)
    checkpoint.save(vit_home / "checkpoints" / "backbone.safetensors", ViT(config), card)
    assert "knows no dishes yet" in facts_html("backbone")
    assert "fine-tune" in empty_html("backbone")
    with pytest.raises(gr.Error, match="fine-tune"):
        classify({"path": "x", "meta": {"_type": "gradio.FileData"}}, checkpoint="backbone")  # pyright: ignore[reportArgumentType]


def card_of(classes: int, **metrics: Count) -> Card:
    names = tuple(f"dish_{number}" for number in range(classes))
    config = ViTConfig(
        image_size=(16, 16),
        patch_size=(16, 16),
        width=8,
        depth=1,
        heads=1,
        mlp_width=8,
        classes=classes,
    )
    return Card(config, Preprocess(size=(16, 16)), names, title="Dishes", metrics=metrics)


def test_the_number_says_what_was_counted(vit_home: Path) -> None:
    """Photos that chose the weights are not called test photos."""
    tested, more = Count(8, 8), Count(80, 90)
    cards = {
        "chosen": card_of(2, validation=Count(99, 100)),
        "tested": card_of(2, validation=Count(99, 100), test=tested, more_photos=more),
        "neither": card_of(2, validation=Count(0, 0)),
    }
    for name, card in cards.items():
        checkpoint.save(vit_home / "checkpoints" / f"{name}.safetensors", ViT(card.config), card)
    assert "<strong>99/100</strong> validation photos right" in facts_html("chosen")
    html = facts_html("tested")
    assert "<strong>80/90</strong> test photos right" in html
    assert all(f"right on {name}<" in html for name in ("validation", "test", "more_photos"))
    assert "photos right" not in facts_html("neither")


def test_a_thousand_dishes_are_no_wall_of_names(vit_home: Path) -> None:
    card = card_of(1000)
    checkpoint.save(vit_home / "checkpoints" / "many.safetensors", ViT(card.config), card)
    shown, _, hidden = facts_html("many").partition("… and 988 more</summary>")
    assert "Dish 11" in shown and "Dish 12" not in shown
    assert "Dish 12" in hidden and "Dish 999" in hidden


def test_the_picker_shows_the_files_names_and_a_bundled_one_first(vit_home: Path) -> None:
    card = card_of(2)
    for name in ("a-copy", "a-model"):  # of the same title
        checkpoint.save(vit_home / "checkpoints" / f"{name}.safetensors", ViT(card.config), card)
    picker, _ = listing()
    assert picker["choices"] == [*BUNDLED, "a-copy", "a-model"]
    assert picker["value"] == BUNDLED[0]


@pytest.mark.parametrize("port", ["99999", "taken"])
def test_a_port_that_cannot_be_had_is_one_sentence(port: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1] if port == "taken" else port
        run = subprocess.run(
            [sys.executable, "app.py", f"--port={number}"],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
        )
    assert run.returncode == 2
    assert re.fullmatch(rf".*port {number}\b.*--port\.\n", run.stderr, re.I)


def test_what_a_file_says_cannot_be_markup(vit_home: Path) -> None:
    """Names out of a checkpoint are shown as text."""
    config = ViTConfig(
        image_size=(16, 16), patch_size=(16, 16), width=8, depth=1, heads=1, mlp_width=8, classes=2
    )
    evil = "<img src=x onerror=alert(1)>"
    card = Card(config, Preprocess(size=(16, 16)), (evil, "b"), licence=evil, unsure_below=1.0)
    path = checkpoint.save(vit_home / "checkpoints" / "evil.safetensors", ViT(config), card)
    classifier = Classifier.load(path)
    html = result_html(classifier.classify(Image.new("RGB", (32, 32))), classifier)
    assert "&lt;img" in html and "<img" not in html
    assert "<img" not in facts_html("evil") + empty_html("evil")


def test_examples_are_pictures_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.jpg", "a.jpg", ".hidden.jpg", "README.md", "draw.py"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.jpg").mkdir()
    monkeypatch.setattr(examples_module, "EXAMPLES", tmp_path)
    assert [path.name for path in examples_module.examples()] == ["a.jpg", "b.jpg"]


def test_examples_of_known_dishes_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(ViTConfig(classes=2), Preprocess(), ("steak", "sushi"))
    entry = checkpoint.Entry("some", Path("some.safetensors"), card, bundled=False)
    monkeypatch.setattr(examples_module, "find", lambda name: entry)
    html = examples_module.examples_html("some")
    shown = re.findall(r"Example: (\w+)", html)
    assert shown[0] == "Steak" and "Sushi" in shown and len(shown) > 4
    known, _, unknown = html.partition("never taught")
    assert "Steak" in known and "Pizza" not in known and "Steak" not in unknown


def test_what_an_example_shows() -> None:
    for dish in ("pizza", "Pizza", "Pizza margherita"):
        assert examples_module.shows("pizza_margherita", dish)
    for dish in ("piz", "steak", "pizza margherita large"):
        assert not examples_module.shows("pizza_margherita", dish)


@pytest.mark.parametrize("program", ["app.py", "train.py --help", "-m vit list"])
def test_without_the_packages_it_is_said_what_to_install(program: str) -> None:
    run = subprocess.run(
        [sys.executable, "-S", *program.split()],  # without what is installed
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert "pip install -r requirements.txt" in run.stderr and run.stderr.count("\n") == 1


def test_importing_the_page_writes_nothing_into_the_source() -> None:
    """Gradio writes a .pyi beside the source of a component class unless it is kept from it."""
    assert not list((Path(__file__).parents[1] / "vit").rglob("*.pyi"))


def test_a_file_that_is_there_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another visitor may be reading it."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    path = Path(keep_file(b"some", "photo.jpg", "shown"))
    assert path.is_relative_to(tmp_path / "shown") and path.read_bytes() == b"some"
    written = path.stat().st_ino
    assert keep_file(b"some", "photo.jpg", "shown") == str(path)
    assert path.stat().st_ino == written
    assert keep_file(b"other", "photo.jpg", "shown") != str(path)
    assert [file.name for file in path.parent.iterdir()] == ["photo.jpg"]
