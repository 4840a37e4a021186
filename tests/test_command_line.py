"""`python -m vit`: what a person types, and what they read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from vit import checkpoint
from vit.__main__ import main
from vit.card import Card
from vit.images import Preprocess
from vit.metrics import Count
from vit.model import ViT, ViTConfig

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ViTConfig((32, 32), (8, 8), width=24, depth=2, heads=2, mlp_width=48, classes=2)


@pytest.fixture
def colours(vit_home: Path) -> str:
    """A checkpoint that tells red from blue, its weights set by hand."""
    model = ViT(CONFIG)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    state = model.state_dict()
    for name in ("norm.weight", *(f"blocks.0.norm{i}.weight" for i in (1, 2))):
        state[name].fill_(1)
    state["patch_embed.proj.weight"][0, 2] = 1  # each patch's first number: how blue it is
    state["patch_embed.proj.weight"][1, 0] = 1  # its second: how red
    state["blocks.0.attn.qkv.weight"][2 * 24 :].copy_(torch.eye(24))  # values are the tokens
    state["blocks.0.attn.proj.weight"].copy_(torch.eye(24))  # the class token takes their mean
    state["head.weight"][0, 0] = state["head.weight"][1, 1] = 1
    card = Card(CONFIG, Preprocess((32, 32)), ("blue_dish", "red_dish"), "colours")
    checkpoint.save(vit_home / "checkpoints" / "colours.safetensors", model, card)
    return "colours"


def photo(path: Path, colour: str, width: int = 60) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, 40), colour).save(path)
    return path


def test_classify_names_the_dish(colours: str, tmp_path: Path, capsys) -> None:
    red, blue = photo(tmp_path / "r.png", "red"), photo(tmp_path / "b.png", "blue")
    assert main(["classify", str(red), str(blue), "--checkpoint", colours, "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2:] for line in lines[1::2]] == [["Red", "dish"], ["Blue", "dish"]]


def test_classify_prints_json(colours: str, tmp_path: Path, capsys) -> None:
    red = photo(tmp_path / "r.png", "red")
    assert main(["classify", str(red), "--checkpoint", colours, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["top"][0]["label"] == "Red dish"
    assert sum(row["probability"] for row in answer["top"]) == pytest.approx(1)
    assert answer["box"] == pytest.approx([12, 2, 48, 38])


def test_a_bad_photo_does_not_keep_the_others_from_being_named(
    colours: str, tmp_path: Path, capsys
) -> None:
    red = photo(tmp_path / "r.png", "red")
    (tmp_path / "x.jpg").write_text("two eggs")
    names = [str(tmp_path / "x.jpg"), str(red), str(tmp_path / "none.jpg")]
    assert main(["classify", *names, "--checkpoint", colours]) == 2
    printed = capsys.readouterr()
    assert "Red dish" in printed.out
    first, second = printed.err.splitlines()
    assert "x.jpg" in first and "none.jpg" in second


def test_evaluate_counts_and_names_confusions(colours: str, tmp_path: Path, capsys) -> None:
    for i in range(3):
        photo(tmp_path / "set" / "red_dish" / f"{i}.png", "red")
    photo(tmp_path / "set" / "blue_dish" / "wrong.png", "red")
    (tmp_path / "set" / "blue_dish" / "broken.png").write_bytes(b"\x89PNG")
    assert main(["evaluate", colours, str(tmp_path / "set")]) == 0
    printed = capsys.readouterr()
    assert "3/4 = 75.0 % (30.1 to 95.4 %)" in printed.out
    assert "1 × Blue dish taken for Red dish" in printed.out
    assert "broken.png" in printed.err


def test_evaluate_records_its_counts_in_a_copy(colours: str, tmp_path: Path, capsys) -> None:
    for i in range(3):
        photo(tmp_path / "set" / "red_dish" / f"{i}.png", "red", 60 + i)
    photo(tmp_path / "set" / "blue_dish" / "wrong.png", "red", 70)
    words, out = ["evaluate", colours, str(tmp_path / "set")], tmp_path / "counted.safetensors"
    assert main([*words, "--crop", "0.8", "--record", "mine", "--out", str(out)]) == 0
    card = checkpoint.read_card(out)
    assert card.metrics["mine"] == Count(3, 4) and card.preprocess.crop == 0.8
    assert card.training["counts"]["mine"] == {"confused": [["blue_dish", "red_dish", 1]]}
    assert main([*words, "--record", "mine"]) == 2
    assert "--out" in capsys.readouterr().err


def test_evaluate_refuses_folders_that_are_no_classes_of_the_model(
    colours: str, tmp_path: Path, capsys
) -> None:
    photo(tmp_path / "set" / "green_dish" / "1.png", "green")
    assert main(["evaluate", colours, str(tmp_path / "set")]) == 2
    message = capsys.readouterr().err
    assert "green_dish" in message and message.count("\n") == 1


def test_summary_prints_the_table_and_the_ledger(capsys) -> None:
    assert main(["summary", "B/16"]) == 0
    printed = capsys.readouterr().out
    assert "86,567,656" in printed
    for shape in ("3 × 224 × 224", "196 × 768", "197 × 768", "12 × 197 × 197", "1,000"):
        assert shape in printed
    assert "Multiply-adds a photo (million): 17,564" in printed  # 17.56 G, as timm's docs have it


def test_summary_of_a_rectangle(capsys) -> None:
    assert main(["summary", "Ti/16", "--image-size", "160", "224", "--classes", "3"]) == 0
    printed = capsys.readouterr().out
    assert "140 × 192" in printed and "141 × 192" in printed


def test_figure_draws_training_photos(tmp_path: Path, capsys) -> None:
    for colour in ("red", "blue"):
        for i in range(8):
            photo(tmp_path / "set" / colour / f"{i}.png", colour, 60 + i)  # no two alike
    out = tmp_path / "figure.png"
    assert main(["figure", str(tmp_path / "set"), "--count", "6", "--out", str(out)]) == 0
    with Image.open(out) as picture:
        assert picture.width > picture.height > 100


@pytest.mark.parametrize(
    "words",
    [
        ["classify", "photo.jpg", "--checkpoint", "nothing"],
        ["evaluate", "nothing", "folder"],
        ["summary", "X/99"],
        ["summary", "Ti/16", "--image-size", "100", "100"],
        ["summary", "Ti/16", "--classes", "0"],
        ["import", "nothing.safetensors"],
        ["figure", "nothing"],
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: list[str], vit_home: Path, capsys) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and "Traceback" not in printed.err


@pytest.mark.parametrize("words", [["classify"], ["nosuch"], ["classify", "a.jpg", "--top", "x"]])
def test_bad_options_are_one_line_and_exit_2(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.count("\n") == 1 and said.endswith(" --help\n") and "usage" not in said


def test_the_module_runs_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_text("two eggs")
    done = subprocess.run(
        [sys.executable, "-m", "vit", "classify", str(tmp_path / "x.jpg")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "x.jpg" in done.stderr and "Traceback" not in done.stderr
