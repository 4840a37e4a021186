"""The layers of the code: a file imports from below its own layer, and `import vit` is light."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# From the bottom up. A name that ends in "." stands for every file of that folder.
LAYERS = (
    ("vit.formats", "vit.hybrid", "vit.names", "vit.relatives", "vit.settings"),
    (
        "vit",
        "vit.activations",
        "vit.distributed",
        "vit.drawing",
        "vit.duplicates",
        "vit.fetch",
        "vit.folders",
        "vit.heat",
        "vit.home",
        "vit.images",
        "vit.limits",
        "vit.lru",
        "vit.maps",
        "vit.memory",
        "vit.metrics",
        "vit.model",
        "vit.optim",
        "vit.speed",
    ),
    ("vit.card", "vit.photoset", "vit.reliability"),
    (
        "vit.attention",
        "vit.augment",
        "vit.calculator",
        "vit.compared",
        "vit.conventions",
        "vit.data",
        "vit.defaults",
        "vit.download",
        "vit.droppath",
        "vit.hubconfig",
        "vit.lesson",
        "vit.naming",
        "vit.precision",
        "vit.reports",
        "vit.summary",
        "vit.top",
        "vit.weightfile",
    ),
    (
        "vit.batches",
        "vit.checkpoint",
        "vit.explain",
        "vit.findings",
        "vit.flax",
        "vit.patches",
        "vit.recipe",
        "vit.walk",
    ),
    (
        "vit.classifier",
        "vit.doctor",
        "vit.evaluate",
        "vit.faithfulness",
        "vit.findings_html",
        "vit.pretrained",
        "vit.runstate",
    ),
    (
        "vit.calibrate",
        "vit.collect",
        "vit.history",
        "vit.inside",
        "vit.looking",
        "vit.runlock",
        "vit.runphotos",
        "vit.sources",
        "vit.start",
    ),
    (
        "vit.blend",
        "vit.estimate",
        "vit.guide",
        "vit.outcome",
        "vit.readings",
        "vit.runfolder",
        "vit.tasks",
        "vit.teacher",
    ),
    (
        "vit.captions",
        "vit.finetune",
        "vit.runs",
        "vit.tour_answer",
        "vit.tour_block",
        "vit.tour_photo",
        "vit.wall",
    ),
    ("vit.cli.terminal", "vit.tour"),
    ("vit.ui", "vit.ui.", "vit.cli", "vit.cli."),
    ("app", "train", "vit.__main__"),
)
TEST_ONLY = {"timm", "transformers", "playwright", "pytest"}


def product() -> dict[str, Path]:
    """Every file that is ours to run, by its dotted name."""
    found = {"app": ROOT / "app.py", "train": ROOT / "train.py"}
    for path in sorted((ROOT / "vit").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layer(name: str) -> int | None:
    for height, names in enumerate(LAYERS):
        if name in names or any(n.endswith(".") and name.startswith(n) for n in names):
            return height
    return None


def imports(source: str, known: Iterable[str]) -> set[str]:
    """Dotted names that a file imports anywhere, also inside functions; `from vit import x` is
    `vit.x` where that is a file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            parts = {f"{module}.{alias.name}" for alias in node.names}
            found |= {part if part in known else module for part in parts}
    return found


def faults(name: str, source: str, known: Iterable[str]) -> list[str]:
    """What the file called `name` imports and should not."""
    own, bad = layer(name), []
    for wanted in sorted(imports(source, known)):
        top = wanted.split(".")[0]
        if top == "gradio" and not (name == "app" or name.startswith("vit.ui.")):
            bad.append(f"{name} imports {wanted}: only the page does")
        if top in TEST_ONLY:
            bad.append(f"{name} imports {wanted}: that is for tests only")
        if wanted.startswith("."):
            bad.append(f"{name} imports {wanted}: write the whole name")
        if top not in ("vit", "app", "train"):
            continue
        height = layer(wanted)
        pieces = name.startswith("vit.ui.") and wanted.startswith("vit.ui.")
        if own is None or height is None or not (height < own or pieces):
            bad.append(f"{name} (layer {own}) imports {wanted} (layer {height})")
    return bad


def test_every_file_has_a_layer() -> None:
    files = product()
    assert len(files) > 20
    assert [name for name in files if layer(name) is None] == []


def test_every_listed_file_exists() -> None:
    listed = [name for names in LAYERS for name in names]
    assert len(listed) == len(set(listed))
    assert [name for name in listed if not name.endswith(".") and name not in product()] == []


@pytest.mark.parametrize("name", sorted(product()))
def test_imports_only_from_below(name: str) -> None:
    files = product()
    assert faults(name, files[name].read_text("utf-8"), files) == []


def test_no_file_imports_itself_in_a_circle() -> None:
    files = product()
    graph = {name: imports(path.read_text("utf-8"), files) for name, path in files.items()}
    assert list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("vit.model", "from vit.checkpoint import load"),
        ("vit.model", "from vit.images import Preprocess"),
        ("vit.checkpoint", "from vit import start"),
        ("vit.images", "def f():\n    import vit.classifier"),
        ("vit.classifier", "import gradio as gr"),
        ("vit.pretrained", "import timm"),
        ("vit.data", "from .images import Photo"),
        ("vit.finetune", "from vit.ui.page import Page"),
        ("vit.finetune", "import train"),
        ("vit.ui.page", "from app import main"),
        ("vit.data", "from vit.unheard_of import x"),
    ],
)
def test_the_check_finds(name: str, source: str) -> None:
    assert len(faults(name, source, {*product(), name})) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("vit.checkpoint", "from vit.model import ViT"),
        ("vit.classifier", "from vit import checkpoint\nimport torch"),
        ("vit.ui.classify", "import gradio as gr\nfrom vit.ui.page import Page"),
        ("train", "from vit.finetune import finetune"),
    ],
)
def test_the_check_allows(name: str, source: str) -> None:
    assert faults(name, source, product()) == []


LOOK = """
import json, sys
calls, at = [], "start"

def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        calls.append(f"{at}: {event} {arguments[1:]}")

sys.addaudithook(watch)
heavy = {}
for at in json.loads(sys.argv[1]):
    __import__(at)
    names = ("gradio", "timm", "transformers", "torchvision.models", "matplotlib.pyplot", "torch")
    heavy[at] = [name for name in names if name in sys.modules]
print(json.dumps([heavy, calls]))
"""


def test_imports_are_light_and_open_no_connection() -> None:
    """One process imports everything but the page, file by file."""
    first = ["vit", "vit.classifier"]  # before the others, so that each is seen by itself
    page = [name for name in product() if name == "app" or name.startswith("vit.ui")]
    names = first + sorted(product().keys() - {*first, *page})
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOK, json.dumps(names)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    heavy, calls = json.loads(done.stdout.splitlines()[-1])
    assert calls == []
    assert heavy["vit"] == []  # not even torch
    assert heavy["vit.classifier"] == ["torch"]
    assert {name: found for name, found in heavy.items() if found not in ([], ["torch"])} == {}


LOAD = """
import sys
from vit.classifier import Classifier

Classifier.load("food101").classify(sys.argv[1])
heavy = ("torch._dynamo", "sympy", "torchvision", "matplotlib")
print([name for name in heavy if name in sys.modules])
"""


def test_an_answer_needs_nothing_heavy_but_torch() -> None:
    """Torch's compiler, which much of torch loads on the way, takes longer than all the rest."""
    photo = str(next((ROOT / "examples").glob("*.jpg")))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, photo], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr or done.stdout
