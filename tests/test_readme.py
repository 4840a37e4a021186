"""The README against the repository: pins, files, links, and the lines that a Space reads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = ("README.md", "vit/checkpoints/README.md", "tests/benchmarks/README.md")
TABS = ("Classify", "Patches", "Attention", "Fine-tune", "Model")
TOP = {"app.py", "vit", "train.py", "requirements.txt", "README.md", "tests", "examples"}


def pins(path: str) -> dict[str, str]:
    lines = (ROOT / path).read_text("utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith(("#", "-r"))]
    found = {}
    for line in wanted:
        match = re.fullmatch(r"([\w-]+)(?:\[\w+\])?==([\w.]+)", line)
        assert match, f"{line} in {path} is no exact pin"
        found[match[1]] = match[2]
    return found


def front_matter() -> dict[str, str]:
    _, block, _ = README.split("---\n", 2)
    return {key: value.strip(' "') for key, value in re.findall(r"(\w+): (.+)", block)}


def test_every_version_is_pinned_and_no_package_twice() -> None:
    product, tests = pins("requirements.txt"), pins("tests/requirements.txt")
    assert {"torch", "torchvision", "gradio", "safetensors", "torchinfo"} <= set(product)
    assert not set(product) & set(tests)


def test_a_space_gets_the_versions_that_are_tested() -> None:
    settings = front_matter()
    assert settings["sdk"] == "gradio"
    assert settings["sdk_version"] == pins("requirements.txt")["gradio"]
    assert (ROOT / settings["app_file"]).is_file()
    assert settings["license"] == "apache-2.0"
    assert {"title", "emoji", "python_version", "colorFrom", "colorTo"} <= set(settings)
    assert len(settings["short_description"]) <= 60  # more is refused by Spaces


def test_installed_versions_are_the_pinned_ones() -> None:
    from importlib.metadata import version

    for name, wanted in (pins("requirements.txt") | pins("tests/requirements.txt")).items():
        assert version(name).split("+")[0] == wanted, name


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub and Hugging Face name them."""
    plain = re.sub(r"```.*?```", "", text, flags=re.S)
    headings = re.findall(r"^#+ (.+)$", plain, re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", DOCUMENTS)
def test_links_lead_somewhere(page: str) -> None:
    """Files and headings; addresses on the web are only checked to be whole and encrypted."""
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links or page != "README.md"
    for link in links:
        if "://" in link:
            assert re.fullmatch(r"https://[\w.-]+\.\w+(/\S*)?", link), link
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text("utf-8")), link


def test_names_of_files_lead_somewhere() -> None:
    named = re.findall(r"`((?:vit|tests|examples)/[\w/]*(?:\.py|\.sh)?|app\.py|train\.py)`", README)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_tab_has_its_picture_and_pictures_are_small() -> None:
    shown = re.findall(r"!\[([^\]]+)\]\((.assets/[\w-]+\.png)\)", README)
    wanted = (*TABS, "Growth")  # the last is drawn by tests/benchmarks/growth.py
    assert {f"{name.lower()}.png" for name in wanted} == {Path(path).name for _, path in shown}
    for words, path in shown:
        assert words.partition(":")[0] in wanted and len(words) > 20
        assert (ROOT / path).stat().st_size < 150_000, path
    assert {path.name for path in (ROOT / ".assets").iterdir()} == {Path(p).name for _, p in shown}


def test_every_file_of_the_library_is_named() -> None:
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "vit").glob("*.py")]
    assert [name for name in files if name not in README and not name.endswith("__init__.py")] == []


def test_the_top_level_is_as_agreed() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    top = {name.split("/")[0] for name in listed if name and not name.startswith(".")}
    assert top <= TOP | {"pyproject.toml", "LICENSE"}


@pytest.mark.parametrize(
    "block", re.findall(r"```python\n(from vit.*?|import torch.*?)```", README, re.S)
)
def test_the_python_in_the_readme_runs(block: str) -> None:
    done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "classify(" in block and "print" in block:
        assert done.stdout.startswith("Pizza 0.9")


@pytest.mark.parametrize("line", re.findall(r"^python -m vit (\w+)", README, re.M))
def test_the_commands_in_the_readme_exist(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    from vit.__main__ import main

    with pytest.raises(SystemExit) as stopped:
        main([line, "--help"])
    assert stopped.value.code == 0 and capsys.readouterr().out


def test_accuracy_is_what_the_checkpoints_say() -> None:
    from vit.checkpoint import BUNDLED, read_card

    for path in BUNDLED.glob("*.safetensors"):
        for name, count in read_card(path).metrics.items():
            if name != "validation":
                assert str(count) in README, f"{path.stem} {name}"


def test_the_comparison_is_what_was_counted() -> None:
    from vit.compared import read_comparison

    found = read_comparison()
    assert found and len(found.rows) == 4
    for row in found.rows:
        assert all(str(counts[0]) in README for counts in row.right.values()), row.name
        assert row.command.startswith("python train.py ") and len(row.curve) == 10
