"""Distillation: what is learned from a teacher's answers, and who may be one."""

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from small import TINY, losses, photos, run, tiny_start
from torch import Tensor

from vit import checkpoint
from vit.data import open_photos
from vit.recipe import Recipe, Stage
from vit.reports import Epoch, Finished
from vit.runstate import RunError
from vit.teacher import Teacher, disagreement

CLASSES = ("beans", "tomato")
CPU = torch.device("cpu")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """One epoch of four steps, learning from the start itself, and from nothing else."""
    start = str(tiny_start(tmp_path / "start.safetensors", classes=CLASSES))
    return Recipe(
        str(photos(tmp_path / "data", 10)),
        start=start,
        mode="all",
        epochs=1,
        batch=4,
        rate=3e-3,
        val_fraction=0.2,
        teacher=start,
        teacher_share=1,
    )


def always_beans(path: Path) -> Path:
    """A teacher that answers beans, by 3 to -3, whatever it sees."""
    model, card = checkpoint.load(tiny_start(path, classes=CLASSES))
    torch.nn.init.zeros_(model.head.weight)
    model.head.bias.data = torch.tensor([3.0, -3.0])
    return checkpoint.save(path, model, card)


def test_disagreement_by_hand() -> None:
    ours = torch.tensor([[0.0, 2 * math.log(3)]])  # softened: 1/4 and 3/4, against 1/2 and 1/2
    far = 4 * (0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75))
    assert disagreement(ours, torch.zeros(1, 2)).item() == pytest.approx(far)
    assert disagreement(ours.repeat(3, 1), torch.zeros(3, 2)).item() == pytest.approx(3 * far)
    same = torch.randn(5, 7, requires_grad=True)
    loss = disagreement(same, same.detach() + 2)  # one number more for every class says nothing
    (gradient,) = torch.autograd.grad(loss, same)
    assert loss.item() == pytest.approx(0, abs=1e-5) and gradient.abs().max() < 1e-5


def test_who_is_taught_by_itself_has_nothing_to_learn(recipe, tmp_path) -> None:
    alone = dataclasses.replace(recipe, mixup=0.4, rate=1e-9)  # also from mixed photos
    assert max(map(abs, losses(run(alone, tmp_path / "a")))) < 1e-5
    by_labels = dataclasses.replace(alone, teacher=None, teacher_share=0.5)
    assert min(losses(run(by_labels, tmp_path / "b"))) > 0.1


def test_the_loss_is_shared_between_labels_and_teacher(recipe, tmp_path) -> None:
    start = str(tiny_start(tmp_path / "other.safetensors"))  # its head is dropped for one of zeros
    teacher = str(always_beans(tmp_path / "beans.safetensors"))
    far = disagreement(torch.zeros(1, 2), torch.tensor([[3.0, -3.0]])).item()
    for share in (0.25, 1):
        taught = dataclasses.replace(recipe, start=start, teacher=teacher, teacher_share=share)
        first = losses(run(taught, tmp_path / str(share)))[0]
        assert first == pytest.approx((1 - share) * math.log(2) + share * far)


def test_what_is_learned_is_what_the_teacher_says(recipe, tmp_path) -> None:
    teacher = str(always_beans(tmp_path / "beans.safetensors"))
    reports = run(dataclasses.replace(recipe, teacher=teacher, epochs=4), tmp_path / "run")
    made = losses(reports)
    assert made[-1] < 0.1 < made[0]
    last = [report for report in reports if isinstance(report, Epoch)][-1]
    assert (last.val.correct, last.val.total) == (2, 4)  # the beans
    end = reports[-1]
    assert isinstance(end, Finished)
    record = checkpoint.read_card(end.path).training
    assert record["taught_by"] == "tiny" and record["recipe"]["teacher"] == teacher
    assert record["teacher_fingerprint"] == checkpoint.fingerprint(teacher)


def test_a_teacher_sees_photos_by_its_own_rules(recipe, tmp_path) -> None:
    model, card = checkpoint.load(recipe.start)
    rules = dataclasses.replace(card.preprocess, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    path = tmp_path / "other.safetensors"
    checkpoint.save(path, model, dataclasses.replace(card, preprocess=rules), torch.float32)
    teacher = Teacher(str(path), [Stage((32, 32), 1)], card.preprocess, CPU)
    views = [card.preprocess.view(open_photos(recipe.data).photo(index)) for index in (0, 15)]
    expected: Tensor = model(rules.batch(views))
    answers = teacher.answer(card.preprocess.batch(views))
    torch.testing.assert_close(answers, expected, rtol=1e-4, atol=1e-4)
    assert not answers.requires_grad and not teacher.model.training


@pytest.mark.parametrize("classes", [("tomato", "beans"), ("beans", "tomato", "plum"), ()])
def test_a_teacher_of_other_classes_is_refused(recipe, tmp_path, classes) -> None:
    other = str(tiny_start(tmp_path / "other.safetensors", classes=classes))
    with pytest.raises(ValueError, match="other.safetensors must have been trained for the") as no:
        run(dataclasses.replace(recipe, teacher=other), tmp_path / "run")
    assert "\n" not in str(no.value)


def test_a_teacher_that_cannot_be_is_refused_before_anything_is_read(recipe, tmp_path) -> None:
    large = dataclasses.replace(TINY, patch_size=(16, 16))
    coarse = str(tiny_start(tmp_path / "coarse.safetensors", large, CLASSES))
    unread = dataclasses.replace(recipe, data="no such folder", image_size="24")
    with pytest.raises(ValueError, match="multiple of 16, the patches of .*coarse"):
        run(dataclasses.replace(unread, teacher=coarse), tmp_path / "run")
    with pytest.raises(ValueError, match="no checkpoint named 'nobody'"):
        run(dataclasses.replace(unread, teacher="nobody"), tmp_path / "run")


def test_a_run_goes_on_with_the_same_teacher_only(recipe, tmp_path) -> None:
    teacher = always_beans(tmp_path / "beans.safetensors")
    recipe = dataclasses.replace(recipe, teacher=str(teacher))
    run(recipe, tmp_path / "run")
    tiny_start(teacher, classes=CLASSES)
    with pytest.raises(RunError, match="teacher changed since this run began"):
        run(recipe, tmp_path / "run")
