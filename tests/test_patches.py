"""A photo as the model reads it: vectors, likeness, filters, and what is left of the answer."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from small import TINY
from torch.nn import functional as F

from vit import checkpoint
from vit.card import Card
from vit.classifier import UntrainedHead
from vit.heat import patch_box
from vit.images import Preprocess
from vit.inside import answer_without, inside, trusted
from vit.model import ViT, ViTConfig
from vit.patches import (
    contact_sheet,
    filters,
    most_trusted,
    principal_filters,
    read,
    similarity,
)


@pytest.fixture
def model() -> ViT:
    torch.manual_seed(3)
    model = ViT(TINY).eval()
    torch.nn.init.normal_(model.head.weight, std=0.5)
    return model


@pytest.mark.parametrize("size", [(32, 32), (16, 40)])
def test_reading_is_what_the_model_computes(model: ViT, size: tuple[int, int]) -> None:
    pixels = torch.randn(1, 3, *size)
    reading = read(model, pixels)
    rows, columns = reading.grid
    assert (rows * 8, columns * 8) == size
    assert reading.patches == rows * columns == len(reading.embedded)
    with torch.no_grad():
        tokens = model.embed(pixels)
        torch.testing.assert_close(reading.embedded + reading.positions, tokens[0, 1:])
        torch.testing.assert_close(reading.encoded, model.encode(tokens)[0, 1:])
        torch.testing.assert_close(reading.logits, model(pixels)[0])
        # worked out by hand: a patch's pixels times the weights of the first layer
        corner = pixels[0, :, :8, 8:16]
        proj = model.patch_embed.proj
        assert proj.bias is not None
        torch.testing.assert_close(
            reading.embedded[1], (proj.weight * corner).sum((1, 2, 3)) + proj.bias
        )
    assert not reading.embedded.requires_grad


def test_reading_knows_registers() -> None:
    config = ViTConfig((16, 16), (8, 8), 8, 1, 2, 16, classes=2, registers=2)
    reading = read(ViT(config).eval(), torch.randn(1, 3, 16, 16))
    assert (reading.prefix, reading.patches, len(reading.encoded)) == (3, 4, 4)


def test_one_photo_at_a_time(model: ViT) -> None:
    with pytest.raises(ValueError, match="one photo"):
        read(model, torch.randn(2, 3, 32, 32))


def test_similarity() -> None:
    vectors = torch.tensor([[1.0, 0], [3, 0], [0, 2], [-1, 0], [1, 1], [0, 0]])
    expected = torch.tensor([1, 1, 0, -1, 0.5**0.5, 0])
    torch.testing.assert_close(similarity(vectors, 0), expected)
    assert similarity(torch.randn(9, 5), 4)[4] == pytest.approx(1)
    with pytest.raises(ValueError, match="no patch 6"):
        similarity(vectors, 6)


def test_a_filter_is_the_picture_that_raises_its_number_most(model: ViT) -> None:
    numbers, pictures = filters(model)
    assert numbers.tolist() == list(range(TINY.width))
    assert pictures.shape == (TINY.width, 8, 8, 3)
    assert pictures.min() >= 0 and pictures.max() <= 1
    weights = model.patch_embed.proj.weight.detach()
    shown = pictures.permute(0, 3, 1, 2) - 0.5
    angles = F.cosine_similarity(shown.flatten(1), weights.flatten(1))
    torch.testing.assert_close(angles, torch.ones(TINY.width))


def test_the_strongest_filters_in_their_order(model: ViT) -> None:
    with torch.no_grad():
        model.patch_embed.proj.weight[[30, 4]] *= 100
    assert filters(model, 2)[0].tolist() == [4, 30]


def test_principal_filters(model: ViT) -> None:
    pictures, shares = principal_filters(model, 7)
    assert pictures.shape == (7, 8, 8, 3) and len(shares) == 7
    assert shares.diff().max() <= 0 and 0 < shares.sum() < 1
    flat = (pictures - 0.5).flatten(1)
    angles = F.normalize(flat) @ F.normalize(flat).T
    torch.testing.assert_close(angles, torch.eye(7), atol=1e-4, rtol=0)


def test_contact_sheet() -> None:
    pictures = torch.zeros(3, 2, 2, 3)
    pictures[2] = 0.5
    sheet = contact_sheet(pictures, columns=2)
    assert sheet.shape == (5, 5, 3)
    assert sheet[:2, :2].max() == 0 and sheet[:2, 3:].max() == 0
    assert sheet[2].min() == 255 and sheet[:2, 2].min() == 255
    assert sheet[3:, :2].unique().tolist() == [128]
    assert sheet[3:, 3:].min() == 255  # no fourth picture


def test_most_trusted_takes_a_share(model: ViT) -> None:
    patches = most_trusted(model, torch.randn(1, 3, 32, 32), share=0.25)
    assert len(patches) == len(set(patches)) == 4
    assert all(0 <= patch < 16 for patch in patches)
    assert len(most_trusted(model, torch.randn(1, 3, 32, 32), share=0.001)) == 1
    with pytest.raises(ValueError, match="share"):
        most_trusted(model, torch.randn(1, 3, 32, 32), share=0)


def saved(folder, name: str, **settings) -> checkpoint.Path:
    torch.manual_seed(5)
    model = ViT(TINY)
    torch.nn.init.normal_(model.head.weight, std=0.5)
    names = tuple("abcde")
    card = Card(TINY, Preprocess((32, 32), crop=0.8), names, **settings)
    return checkpoint.save(folder / f"{name}.safetensors", model, card)


def test_patches_lie_on_the_photo_where_the_model_saw_them(tmp_path) -> None:
    """A bright square drawn over one patch of the crop is that patch, and no other, inside."""
    path = saved(tmp_path, "some")
    size = (500, 300)
    box = Preprocess((32, 32), crop=0.8).box(*size)
    for patch in (0, 6, 15):
        photo = Image.new("RGB", size, "black")
        left, top, right, bottom = patch_box(box, (4, 4), patch)
        ImageDraw.Draw(photo).rectangle((left, top, right - 1, bottom - 1), fill="white")
        file = tmp_path / f"{patch}.png"
        photo.save(file)
        this = inside(str(file), path)
        assert this.grid == (4, 4) and this.photo_size == size
        bright = torch.tensor(np.array(this.view.convert("L"))).view(4, 8, 4, 8).float()
        means = bright.permute(0, 2, 1, 3).flatten(2).mean(2).flatten()
        assert means.argmax() == patch and means[patch] > 200
        assert means.sum() - means[patch] < 60  # what resampling spills over
        # and on the photo as it is shown
        left, top, right, bottom = patch_box(this.box, this.grid, patch)
        shown = this.photo.crop((round(left), round(top), round(right), round(bottom)))
        assert sum(shown.convert("L").histogram()[128:]) > 0.9 * shown.width * shown.height


def test_a_letterbox_is_shown_with_its_borders(tmp_path) -> None:
    path, file = saved(tmp_path, "some"), tmp_path / "wide.png"
    Image.new("RGB", (400, 200), "white").save(file)
    this = inside(str(file), path, "letterbox")
    assert this.photo.size == (400, 400) and this.box == (0, 0, 400, 400)
    assert this.original_box == (0, -100, 400, 300)
    assert inside(str(file), path, "crop").photo.size == (400, 200)


def test_the_model_reads_a_photo_once(tmp_path, monkeypatch) -> None:
    path, file = saved(tmp_path, "some"), tmp_path / "photo.png"
    Image.effect_noise((60, 60), 80).convert("RGB").save(file)
    first = inside(str(file), path)
    monkeypatch.setattr(ViT, "encode", None)
    assert inside(str(file), path) is first


def test_another_photo_checkpoint_or_fit_is_another_reading(tmp_path) -> None:
    one, file = saved(tmp_path, "some"), tmp_path / "photo.png"
    Image.effect_noise((60, 40), 80).convert("RGB").save(file)
    first = inside(str(file), one)
    assert inside(str(file), one, "letterbox") is not first
    assert inside(str(file), saved(tmp_path, "other", temperature=2.0), "crop") is not first
    saved(tmp_path, "some", temperature=3.0)  # the file is replaced
    assert inside(str(file), one).card.temperature == 3.0
    Image.effect_noise((60, 40), 80).convert("RGB").save(file)
    assert not torch.equal(inside(str(file), one).reading.embedded, first.reading.embedded)


def test_answers_without_patches(tmp_path) -> None:
    path, file = saved(tmp_path, "some", temperature=2.0), tmp_path / "photo.png"
    Image.effect_noise((60, 60), 80).convert("RGB").save(file)
    this = inside(str(file), path)
    torch.testing.assert_close(answer_without(this, []), this.probabilities)
    without = answer_without(this, trusted(this))
    assert without.sum() == pytest.approx(1) and not torch.allclose(without, this.probabilities)
    assert len(trusted(this)) == 3  # a fifth of 16
    nothing = answer_without(this, range(16))
    Image.effect_noise((60, 60), 80).convert("RGB").save(tmp_path / "other.png")
    other = inside(str(tmp_path / "other.png"), path)
    torch.testing.assert_close(answer_without(other, range(16)), nothing)


def test_a_backbone_has_no_answer_to_change(tmp_path) -> None:
    path, file = saved(tmp_path, "backbone", trained_head=False), tmp_path / "photo.png"
    Image.new("RGB", (60, 60)).save(file)
    this = inside(str(file), path)
    with pytest.raises(UntrainedHead, match="fine-tune"):
        answer_without(this, [1])
    with pytest.raises(UntrainedHead):
        trusted(this)


def test_hiding_what_is_trusted_hurts_more_than_chance(shared_data) -> None:
    """On real photos and the bundled model, by far and on average."""
    path = checkpoint.resolve("pizza-steak-sushi")
    generator = torch.Generator().manual_seed(0)
    trusted_drops, chance_drops = [], []
    for dish in ("pizza", "steak", "sushi"):
        for file in sorted((shared_data / "pizza_steak_sushi" / "test" / dish).iterdir())[:2]:
            this = inside(str(file), path)
            first = int(this.probabilities.argmax())
            gone = trusted(this)
            chance = torch.randperm(196, generator=generator)[: len(gone)].tolist()
            was = this.probabilities[first].item()
            trusted_drops.append(was - answer_without(this, gone)[first].item())
            chance_drops.append(was - answer_without(this, chance)[first].item())
    assert sum(trusted_drops) > 3 * max(0.0, sum(chance_drops))
    assert sum(trusted_drops) / len(trusted_drops) > 0.05
