"""Published models that can be had by name: where they are, what is known of the files, and getting
one: fetched, checked, turned into a checkpoint of ours."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import requests
import torch

from vit import checkpoint
from vit.card import Card, CheckpointError
from vit.conventions import preprocess_for
from vit.fetch import DownloadError, Progress, fetch
from vit.home import home
from vit.hubconfig import MAX_BYTES as MAX_CONFIG
from vit.hubconfig import NAMES
from vit.model import ViT
from vit.pretrained import read_weights

MAX_BYTES = 8 * 2**30  # the largest file of a Vision Transformer that we know has 2.5 GB
_HUB = "https://huggingface.co/"
_NO_NAMES = ("model", "pytorch_model", "weights")  # what files are called on every hub
_META = "https://dl.fbaipublicfiles.com/"


@dataclass(frozen=True)
class Source:
    """A published file of weights. `sha256` may be the first digits alone, as some publishers write
    them into the file's name; it is empty where none is published, and then what the server tells
    is compared. `title`, `about` and `megabytes` are for people."""

    name: str
    title: str
    about: str
    url: str
    megabytes: int
    convention: str
    licence: str
    attribution: str
    sha256: str = ""
    size: int | None = None

    @property
    def address(self) -> str:
        """Where the file is fetched: its URL, or on a mirror, by our name (`$VIT_MODELS_URL`)."""
        mirror = os.environ.get("VIT_MODELS_URL", "").strip().rstrip("/")
        ending = os.path.splitext(urlsplit(self.url).path)[1]
        return f"{mirror}/{self.name}{ending}" if mirror else self.url


def _timm(repository: str, revision: str) -> str:
    return f"{_HUB}timm/{repository}/resolve/{revision}/model.safetensors"


SOURCES = (
    Source(
        "augreg-ti16",
        "ViT-Ti/16, AugReg",
        "ImageNet-21k, then ImageNet-1k",
        _timm(
            "vit_tiny_patch16_224.augreg_in21k_ft_in1k", "7d3afdd0cf93ad84d986eb2d6bcc5812ebd0b106"
        ),
        23,
        "augreg",
        "Apache-2.0",
        "Google Research, Steiner et al. 2021 (arXiv:2106.10270); file by timm",
        "fecf81b492bd13ee7a5297cb74d1d417aac8bf7e1b7d96aed89c4691984587ed",
    ),
    Source(
        "augreg-s16",
        "ViT-S/16, AugReg",
        "ImageNet-21k, then ImageNet-1k",
        _timm(
            "vit_small_patch16_224.augreg_in21k_ft_in1k", "7e2c55630205e1266030f18370f4c6ed1a514b52"
        ),
        88,
        "augreg",
        "Apache-2.0",
        "Google Research, Steiner et al. 2021 (arXiv:2106.10270); file by timm",
        "79c03c635cdfd798a364a9d8c4e5c0b7255b975ea2c9616046d4f77ab01435aa",
        88_216_496,
    ),
    Source(
        "augreg-b16",
        "ViT-B/16, AugReg",
        "ImageNet-21k, then by timm ImageNet-1k",
        _timm(
            "vit_base_patch16_224.augreg2_in21k_ft_in1k", "063c6c38a5d8510b2e57df480445e94b231dad2c"
        ),
        346,
        "augreg",
        "Apache-2.0",
        "Google Research, Steiner et al. 2021 (arXiv:2106.10270), fine-tuned by timm",
        "32aa17d6e17b43500f531d5f6dc9bc93e56ed8841b8a75682e1bb295d722405b",
        346_284_714,
    ),
    Source(
        "torchvision-b16",
        "ViT-B/16, torchvision",
        "ImageNet-1k",
        "https://download.pytorch.org/models/vit_b_16-c867db91.pth",
        346,
        "torchvision",
        "BSD-3-Clause",
        "torchvision, ViT_B_16_Weights.IMAGENET1K_V1",
        "c867db91",
    ),
    Source(
        "deit-ti16",
        "DeiT-Ti/16",
        "ImageNet-1k",
        f"{_META}deit/deit_tiny_patch16_224-a1311bcf.pth",
        23,
        "deit",
        "Apache-2.0",
        "Touvron et al. 2021 (arXiv:2012.12877)",
        "a1311bcf",
    ),
    Source(
        "dinov2-s14-registers",
        "DINOv2-S/14, registers",
        "142 million pictures without labels: to be fine-tuned",
        f"{_META}dinov2/dinov2_vits14/dinov2_vits14_reg4_pretrain.pth",
        88,
        "dinov2",
        "Apache-2.0",
        "Oquab et al. 2023 (arXiv:2304.07193), Darcet et al. 2024 (arXiv:2309.16588)",
        "f433177089a681826f849f194ece3bb48f4d63fb38d32fc837e3dc7a4e5641fb",
        88_291_785,
    ),
    Source(
        "r50-b16",
        "R50+ViT-B/16, hybrid",
        "384 pixels; ImageNet-21k, then ImageNet-1k",
        "https://storage.googleapis.com/vit_models/imagenet21k%2Bimagenet2012/R50%2BViT-B_16.npz",
        396,
        "augreg",
        "Apache-2.0",
        "Google Research, Dosovitskiy et al. 2021 (arXiv:2010.11929)",
    ),
)


def source(name: str) -> Source:
    """The source of that name; CheckpointError with all names when there is none."""
    for each in SOURCES:
        if each.name == name:
            return each
    names = ", ".join(each.name for each in SOURCES)
    raise CheckpointError(f"There is no published model called {name}; there are {names}.")


def pull(name: str, progress: Progress | None = None) -> Path:
    """The checkpoint of a published model, in the user's folder; fetched where it is not there yet.

    Raises DownloadError when it cannot be fetched, CheckpointError when there is no such name or
    another checkpoint bears it.
    """
    wanted = source(name)
    path = home() / "checkpoints" / f"{name}{checkpoint.SUFFIX}"
    if path.is_file():
        if checkpoint.read_card(path).training.get("url") == wanted.url:
            return path
        raise CheckpointError(
            f"There is another checkpoint {name} in {path.parent}; rename it, then pull again."
        )
    with downloaded(wanted.address, progress, wanted.sha256, wanted.size) as (file, checked):
        model, card = read_weights(file)
    card = replace(
        card,
        title=wanted.title,
        preprocess=preprocess_for(wanted.convention, card.config.image_size),
        licence=wanted.licence,
        attribution=wanted.attribution,
    )
    return store(path, model, with_origin(card, wanted.url, checked))


def reachable() -> bool:
    """Whether any of the machines that have the published models answers within three seconds."""
    machines = {urljoin(each.address, "/") for each in SOURCES}

    def answers(address: str) -> bool:
        with suppress(requests.RequestException):
            requests.head(address, timeout=3, allow_redirects=False).close()
            return True
        return False

    with ThreadPoolExecutor(len(machines)) as pool:
        return any(pool.map(answers, machines))


def read_from(
    where: str, heads: int | None = None, progress: Progress | None = None
) -> tuple[ViT, Card]:
    """A model from a file of weights or a web address of one (`downloaded`), as `read_weights`.

    The title is a name to tell it by; hubs call every file "model". Raises CheckpointError and
    DownloadError.
    """
    if "://" not in where:
        path = Path(where)
        if path.is_dir():  # as transformers saves a model
            inside = (path / name for name in ("model.safetensors", "pytorch_model.bin"))
            path = next((file for file in inside if file.is_file()), path)
        model, card = read_weights(path, heads=heads)
        named = path.absolute().parent.name if card.title in _NO_NAMES else card.title
        return model, replace(card, title=named)
    with downloaded(where, progress) as (path, checked):
        model, card = read_weights(path, heads=heads)
    url = direct(where)
    on_hub = re.match(rf"{_HUB}[^/]+/([^/]+)/resolve/", url)
    named = on_hub[1] if on_hub and card.title in _NO_NAMES else card.title
    return model, replace(with_origin(card, url, checked), title=named)


@contextmanager
def downloaded(
    url: str, progress: Progress | None = None, sha256: str = "", size: int | None = None
) -> Iterator[tuple[Path, str]]:
    """The file of weights at a web address, and how it was checked.

    The address of a model's page on the Hugging Face Hub stands for the weights there; what the hub
    has beside them (class names, preprocessing) is fetched too. The file is gone afterwards, unless
    something is raised: then it need not be fetched again. Raises DownloadError.
    """
    url = direct(url)
    folder = home() / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:16]
    file = folder / _file_name(url)
    checks = folder / "checked.txt"
    if file.is_file() and checks.is_file():  # from a call that raised
        checked = checks.read_text("utf-8")
    else:
        checked = fetch(url, file, "weights", MAX_BYTES, progress, sha256, size)
        checks.write_text(checked, "utf-8")
        if "/resolve/" in url:
            for name in NAMES:
                with suppress(DownloadError):  # not every model has them
                    beside = urljoin(url, name)
                    fetch(beside, folder / name, "the model's config", MAX_CONFIG)
    yield file, checked
    shutil.rmtree(folder, ignore_errors=True)


def _file_name(url: str) -> str:
    """What the file at a web address is called here: no folder, and nothing hidden."""
    name = unquote(urlsplit(url).path).replace("\\", "/").rpartition("/")[2]
    return re.sub(r"[^\w.+-]", "_", name)[-100:].lstrip(".") or "weights"


def direct(url: str) -> str:
    """The address of a file, for that of a model's or a file's page on the Hugging Face Hub."""
    if re.fullmatch(rf"{_HUB}[\w.-]+/[\w.-]+/?", url):
        return f"{url.rstrip('/')}/resolve/main/model.safetensors"
    return url.replace("/blob/", "/resolve/", 1) if url.startswith(_HUB) else url


def with_origin(card: Card, url: str, checked: str) -> Card:
    return replace(card, training={**card.training, "url": url, "checked": checked})


def store(path: Path, model: ViT, card: Card) -> Path:
    """Save an imported model in the precision that its file had."""
    half = card.training.get("precision") == "float16"
    return checkpoint.save(path, model, card, torch.float16 if half else torch.float32)
