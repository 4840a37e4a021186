"""Published models by name and by address: from a server on this machine."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from homes import google_file, scatter
from PIL import Image
from safetensors.torch import save
from test_download import Server, local_server  # noqa: F401  (a fixture)
from torchvision.models import ViT_B_16_Weights

from vit import checkpoint, sources
from vit.__main__ import main
from vit.card import CheckpointError
from vit.cli.models import FAMILIES
from vit.conventions import CONVENTIONS
from vit.fetch import DownloadError
from vit.inside import inside
from vit.looking import Question, look_at
from vit.readings import heat_of
from vit.sources import SOURCES, direct, pull


@pytest.fixture(scope="module")
def weights() -> bytes:
    theirs = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=3, img_size=32)
    state = scatter(theirs).state_dict()
    return save({name: value.clone() for name, value in state.items()})


@pytest.fixture
def published(
    server: Server, weights: bytes, monkeypatch: pytest.MonkeyPatch, vit_home: Path
) -> Server:
    """A server that has the first source's file, under a local address."""
    server.body, server.kind, server.headers = weights, "application/octet-stream", {}
    local = replace(
        SOURCES[0],
        url=f"{server.base}/weights.safetensors",
        sha256=hashlib.sha256(weights).hexdigest(),
        size=len(weights),
    )
    monkeypatch.setattr(sources, "SOURCES", (local, *SOURCES[1:]))
    return server


NAME = SOURCES[0].name


def test_pulled_checked_kept_and_used(
    published: Server, vit_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", NAME]) == 0
    told = capsys.readouterr().out
    assert "Checked: size and SHA-256 as published." in told and "1 blocks, 192 wide" in told
    path = vit_home / "checkpoints" / f"{NAME}.safetensors"
    card = checkpoint.read_card(path)
    assert card.licence == "Apache-2.0" and "Steiner" in card.attribution
    assert card.title == SOURCES[0].title
    assert list((vit_home / "downloads").iterdir()) == []
    assert pull(NAME) == path
    assert len(published.asked) == 1  # nothing was fetched again
    Image.new("RGB", (64, 48), "orange").save(tmp_path / "a.png")
    assert main(["classify", "--checkpoint", NAME, str(tmp_path / "a.png")]) == 0


def test_weights_are_stored_as_precisely_as_they_came(published: Server) -> None:
    model, _ = checkpoint.load(pull(NAME))
    theirs = scatter(timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=3, img_size=32))
    assert torch.equal(model.head.weight, theirs.get_parameter("head.weight"))


def test_a_break_in_the_middle_is_taken_up(published: Server, weights: bytes) -> None:
    published.cuts = [len(weights) // 2]
    pull(NAME)
    assert int(published.asked[1][6:-1]) > len(weights) / 4


def test_stopped_and_pulled_again(published: Server, weights: bytes) -> None:
    def stop(done: int, total: int | None) -> None:
        if done > len(weights) / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(NAME, stop)
    pull(NAME)
    assert int(published.asked[1][6:-1]) >= len(weights) / 2


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        ({"claim": 500}, "broke off"),
        ({"claim": -500}, "instead of the"),
        ({"kind": "text/html"}, "sent a web page instead of weights"),
        ({"status": 404}, "answered 404"),
        ({"body": b"x" * 1000}, "instead of the"),
    ],
)
def test_what_is_not_the_file_is_one_sentence(
    published: Server,
    vit_home: Path,
    capsys: pytest.CaptureFixture[str],
    lie: dict,
    text: str,
) -> None:
    for name, value in lie.items():
        setattr(published, name, value)
    assert main(["pull", NAME]) == 2
    told = capsys.readouterr().err
    assert text in told and told.count("\n") == 1
    assert not (vit_home / "checkpoints").exists()


def test_offline_is_one_sentence(published: Server, capsys: pytest.CaptureFixture[str]) -> None:
    published.server_close()
    assert main(["pull", NAME]) == 2
    assert re.fullmatch(r".* cannot be reached, .*; check the network.*\n", capsys.readouterr().err)


def test_names(published: Server, vit_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull"]) == 0
    listed = capsys.readouterr().out
    assert all(each.name in listed and each.title in listed for each in SOURCES)
    with pytest.raises(CheckpointError, match=f"called nothing; there are {NAME}, "):
        pull("nothing")
    model, card = checkpoint.load(checkpoint.resolve("pizza-steak-sushi"))
    checkpoint.save(vit_home / "checkpoints" / f"{NAME}.safetensors", model, card)
    with pytest.raises(CheckpointError, match="another checkpoint .*; rename it"):
        pull(NAME)


def test_sources_are_sound() -> None:
    names = [each.name for each in SOURCES]
    assert len(set(names)) == len(names)
    assert set(FAMILIES) == set(CONVENTIONS)
    for each in SOURCES:
        assert re.fullmatch(r"[a-z0-9-]+", each.name) and each.url.startswith("https://")
        assert each.convention in CONVENTIONS and each.licence and each.attribution
        assert re.fullmatch(r"|[0-9a-f]{8}|[0-9a-f]{64}", each.sha256)
        assert each.size is None or round(each.size / 1e6) == each.megabytes
        assert not (checkpoint.BUNDLED / f"{each.name}.safetensors").exists()


def test_addresses_are_those_of_the_libraries() -> None:
    urls = {each.name: each.url for each in SOURCES}

    def of_timm(name: str) -> Any:
        return timm.get_pretrained_cfg(name)

    assert urls["torchvision-b16"] == ViT_B_16_Weights.IMAGENET1K_V1.url
    assert urls["deit-ti16"] == of_timm("deit_tiny_patch16_224.fb_in1k").url
    dinov2 = of_timm("vit_small_patch14_reg4_dinov2.lvd142m")
    assert urls["dinov2-s14-registers"] == dinov2.url
    for name in ("augreg-ti16", "augreg-s16", "augreg-b16"):
        repository = urls[name].split("/")[4]
        assert of_timm(repository) is not None
    for name in ("torchvision-b16", "deit-ti16"):  # the digits in the name are the checksum's
        digits = next(each.sha256 for each in SOURCES if each.name == name)
        assert urls[name].endswith(f"-{digits}.pth")


# --- By address ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://huggingface.co/a/b-c.d", "https://huggingface.co/a/b-c.d/resolve/main/model.saf"),
        ("https://huggingface.co/a/b/blob/main/x.bin", "https://huggingface.co/a/b/resolve/main/x"),
        ("https://example.org/a/b", "https://example.org/a/b"),
    ],
)
def test_pages_stand_for_files(given: str, expected: str) -> None:
    assert direct(given).startswith(expected)


def test_import_from_an_address_with_what_lies_beside_it(
    published: Server, weights: bytes, vit_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "model_type": "vit",
        "hidden_size": 192,
        "num_hidden_layers": 1,
        "id2label": {"0": "pho", "1": "ramen", "2": "udon"},
    }
    published.files = {
        "model.safetensors": weights,
        "/config.json": json.dumps(config).encode(),
    }
    url = f"{published.base}/resolve/main/model.safetensors"
    assert main(["import", url, "--name", "noodles", "--crop", "1"]) == 0
    assert "Checked: size as told by its server." in capsys.readouterr().out
    card = checkpoint.read_card(vit_home / "checkpoints" / "noodles.safetensors")
    assert card.classes == ("pho", "ramen", "udon")
    assert card.training["url"] == url and card.preprocess.crop == 1


@pytest.mark.parametrize(
    "name", ["..%2F..%2F..%2Fout.npz", "..%5C..%5Cout.npz", "%2Fout.npz", ".."]
)
def test_an_address_names_no_other_folder(published: Server, vit_home: Path, name: str) -> None:
    """What is no file of weights stays where it was fetched to, to be looked at again."""
    published.body = b"no weights"
    assert main(["import", f"{published.base}/{name}", "--name", "a"]) == 2
    files = [path for path in vit_home.parent.rglob("*") if path.is_file()]
    assert len(files) == 2 and {path.parent.parent for path in files} == {vit_home / "downloads"}


def test_what_could_not_be_read_need_not_be_fetched_again(
    published: Server, vit_home: Path
) -> None:
    url = f"{published.base}/weights.safetensors"
    assert main(["import", url, "--name", "a", "--heads", "7"]) == 2
    assert main(["import", url, "--name", "a"]) == 0
    assert len(published.asked) == 1


def test_import_of_a_google_file(
    tmp_path: Path, vit_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=1000, img_size=32)
    path = google_file(tmp_path / "ViT-Ti_16.npz", scatter(theirs), pre_logits=16)
    assert main(["import", str(path), "--preprocess", "deit", "--image-size", "48", "64"]) == 0
    told = capsys.readouterr().out
    assert "Google's Flax files" in told and "(pre_logits) is kept" in told
    card = checkpoint.read_card(vit_home / "checkpoints" / "ViT-Ti_16.safetensors")
    assert card.preprocess == replace(CONVENTIONS["deit"], size=(48, 64))
    assert card.classes[963] == "pizza"
    Image.new("RGB", (64, 48), "orange").save(tmp_path / "a.png")
    assert main(["classify", "--checkpoint", "ViT-Ti_16", str(tmp_path / "a.png")]) == 0


def test_a_head_of_zeros_is_said_to_be_untrained(
    tmp_path: Path, vit_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=9, img_size=32)
    scatter(theirs)
    torch.nn.init.zeros_(theirs.get_parameter("head.weight"))
    google_file(tmp_path / "a.npz", theirs)
    assert main(["import", str(tmp_path / "a.npz")]) == 0
    assert "no trained head: fine-tune it with python train.py" in capsys.readouterr().out


def test_no_such_address(vit_home: Path) -> None:
    with pytest.raises(DownloadError, match="no address"):
        sources.read_from("ftp://example.org/a.npz")


# --- In the tabs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("vit_small_patch14_reg4_dinov2", (5, 5)),  # no head: it knows no classes
        ("deit_tiny_distilled_patch16_224", (4, 4)),
        ("vit_tiny_r_s16_p8_224", (2, 2)),
    ],
)
def test_attention_and_patches_of_imported_models(
    tmp_path: Path, vit_home: Path, name: str, grid: tuple[int, int]
) -> None:
    size = 70 if "patch14" in name else 64
    theirs = scatter(timm.create_model(name, depth=2, num_classes=0, img_size=size))
    if "deit" in name:
        theirs = scatter(timm.create_model(name, depth=2, num_classes=5, img_size=size))
    path = tmp_path / "theirs.pth"
    torch.save(theirs.state_dict(), path)
    assert main(["import", str(path), "--name", "theirs"]) == 0
    Image.new("RGB", (80, 90), "orange").save(tmp_path / "a.png")
    photo, made = str(tmp_path / "a.png"), checkpoint.resolve("theirs")
    look = look_at(photo, made)
    assert heat_of(look, Question("head", layer=1, head=0)).shape == grid
    assert heat_of(look, Question("rollout")).isfinite().all()
    assert inside(photo, made).grid == grid
    if look.card.trained_head:
        assert heat_of(look, Question("relevance")).shape == grid
