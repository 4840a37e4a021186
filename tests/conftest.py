"""Fixtures that several test files share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small import lay_out

from vit.precision import quicken_float32

quicken_float32()  # else the first checkpoint that is loaded does, between two results of a test
torch.set_num_threads(1)  # small matrices are slower on many, most of all beside other programs
SHARED = Path(__file__).resolve().parents[2] / "shared"


def _present(path: Path) -> Path:
    """`path`, or a skip with its reason; on the project's CI a missing folder is a failure."""
    if not path.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{path.name} must be there on CI")
        pytest.skip(f"needs the test material {path.name}, which is not part of the repository")
    return path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photos, which may not be shipped."""
    return _present(SHARED / "data")


@pytest.fixture(scope="session")
def imagenet_weights() -> Path:
    """ViT-Ti/16's ImageNet weights, which may not be shipped."""
    return _present(SHARED / "weights" / "vit_tiny_patch16_224.fp16.safetensors")


@pytest.fixture
def vit_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty user's folder."""
    monkeypatch.setenv("VIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data (12 training and 4 test photos of two classes) and a small start."""
    return lay_out(tmp_path_factory.mktemp("made"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Whatever a test does to the number of torch's threads, the next one has one again."""
    yield
    torch.set_num_threads(1)
