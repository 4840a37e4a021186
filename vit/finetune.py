"""Fine-tuning, and training from scratch, as one generator of small frozen reports.

Everything random comes from the recipe's seed and the step's number alone, so a run that is
killed and resumed from its saved state goes on exactly as if nothing had happened.
"""

import math
import platform
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit import checkpoint
from vit.attention import explicit_attention
from vit.batches import prefetch, shuffled
from vit.card import Card
from vit.data import DataSet
from vit.distributed import World
from vit.droppath import drop_path
from vit.evaluate import Evaluation, evaluate
from vit.memory import keep_freed
from vit.metrics import Count
from vit.optim import Average, parameter_groups, rate_at
from vit.outcome import write_outcome
from vit.precision import quicken_float32
from vit.recipe import Recipe, Stage
from vit.reports import Epoch, Finished, Prepared, Report, Started, Step, Warned
from vit.runlock import locked
from vit.runphotos import RunPhotos
from vit.runstate import (
    BEST,
    RECIPE,
    SKIPPED,
    STOP,
    clear,
    restore_state,
    save_state,
    write_json,
)
from vit.speed import Speed, TimeLeft
from vit.start import Start, read_start
from vit.tasks import Given, Task, task_of
from vit.teacher import Teacher, disagreement

ALONE = World()
SAVE_EVERY = 60.0  # seconds between two saved states inside an epoch
UNSURE_SHARE = 0.1  # of the validation photos are called unsure, to catch most other dishes


def finetune(
    recipe: Recipe,
    folder: Path,
    data: DataSet | None = None,
    save_every: float = SAVE_EVERY,
    since: float | None = None,
    world: World = ALONE,
) -> Generator[Report, None, None]:
    """Train as `recipe` says; what the run needs and makes lies in `folder`, see `vit.runstate`.

    Yields reports; a file named `stop` in the folder ends the run at its next batch, unless it is
    older than `since` (seconds since 1970; without it this moment). When the folder holds the state
    of an earlier try, the run goes on from there. The best weights by the validation photos become
    `folder / <name>.safetensors`, with counts on every test set, which are looked at only then.
    `data` spares reading `recipe.data`. In a `world` of several processes all of them must see
    `folder`, only the leading one writes there, and the last report of the others has no counts.
    Raises ValueError or OSError, in one sentence, for what cannot be trained or written, and when
    another process trains in `folder`; an interrupted run can then be resumed.
    """
    quicken_float32()
    keep_freed()
    since = time.time() if since is None else since
    full = recipe.completed()
    start, stages = read_start(full)
    teacher = None
    if full.teacher is not None:
        teacher = Teacher(full.teacher, stages, start.card.preprocess, world.device)
    with locked(folder) if world.leads else nullcontext():
        world.agree(None)  # nobody goes on without the lock
        photos = RunPhotos(full, data)
        if teacher:
            teacher.check(photos.data.classes)
        full = recipe.completed(len(photos.data.train))
        stages = full.stages(stages[0].size)
        if world.leads:
            _forget_stop(folder / STOP, since)
            # Complete, lest defaults change before a resume.
            write_json(folder / RECIPE, full.to_json())
            write_json(folder / SKIPPED, photos.skipped)
        run = _Run(full, folder, start, teacher, stages, photos, save_every, world)
        yield run.started()
        if not run.progress.step:
            yield from (Warned(0, text) for text in photos.warnings)
        if run.progress.step < run.steps:
            clock = TimeLeft()
            for done, total in run.task.prepare(resumed=run.progress.step > 0):
                yield Prepared(done, total, clock.seconds(done / total))
                if run.must_stop():
                    break
        for epoch in range(run.progress.step // run.steps_per_epoch, len(run.schedule)):
            if run.outcome == "finished":
                yield from run.train(epoch)
        yield run.finish()


def _forget_stop(stop: Path, since: float) -> None:
    """Remove the wish to stop an earlier try; a newer one holds, even if nothing was done yet.

    One from the future is an earlier one's too: the clock has been set back.
    """
    with suppress(FileNotFoundError):
        if not since <= stop.stat().st_mtime < time.time() + 60:
            stop.unlink()


class _Run:
    """A run under way: the model, what trains it, and how far it is."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        start: Start,
        teacher: Teacher | None,
        stages: tuple[Stage, ...],
        photos: RunPhotos,
        save_every: float,
        world: World,
    ) -> None:
        self.began = self.saved_at = time.monotonic()
        self.recipe, self.folder, self.save_every = recipe, folder, save_every
        self.start, self.teacher = start, teacher
        self.data, self.tests = photos.data, photos.tests
        self.world, self.device = world, world.device
        self.model = start.new_model(self.data.classes, recipe).to(self.device)
        preprocess = replace(start.card.preprocess, size=stages[0].size)
        given = Given(self.model, self.data, recipe, preprocess, folder, world)
        self.task: Task = task_of(given)
        assert recipe.batch is not None
        self.batch = recipe.batch
        self.schedule = [(i, stage) for i, stage in enumerate(stages) for _ in range(stage.epochs)]
        self.steps_per_epoch = math.ceil(len(self.data.train) / self.batch)
        self.steps = self.steps_per_epoch * len(self.schedule)
        decay = max(0.0, 1 - 10 / self.steps) if recipe.ema is None else recipe.ema
        self.average = Average(self.task.module, decay)
        assert recipe.rate is not None and recipe.layer_decay is not None
        groups = parameter_groups(
            self.task.module, self.model.config.depth, recipe.weight_decay, recipe.layer_decay
        )
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.rate, fused=True)
        self.origin = {"photos": self.data.fingerprint, "start": start.fingerprint}
        if teacher:
            self.origin["teacher"] = teacher.fingerprint
        self.progress = restore_state(
            folder, self.task.module, self.average, self.optimizer, self.origin
        )
        world.agree(None)  # all have read it
        if world.leads:
            clear(folder)
            if not self.progress.step:  # of a try that was killed before its first state
                (folder / BEST).unlink(missing_ok=True)
        self.forward: Callable[[Tensor, float], Tensor] = world.together(_Forward(self.task))
        frozen = recipe.mode != "all"
        costs = [1.0 if frozen else s.size[0] * s.size[1] * s.keep for _, s in self.schedule]
        self.speed = Speed(costs, self.steps_per_epoch)
        self.outcome = "finished"
        self.best: Evaluation | None = None  # of the validation photos; None after a resume

    def started(self) -> Started:
        return Started(
            start=self.recipe.start,
            classes=self.data.classes,
            train=len(self.data.train),
            val=len(self.data.val),
            test=sum(map(len, self.tests.values())),
            epochs=len(self.schedule),
            steps=self.steps,
            trainable=sum(p.numel() for p in self.task.module.parameters()),
            fingerprint=self.data.fingerprint,
            resumed_at=self.progress.step,
        )

    def must_stop(self) -> bool:
        """Whether somebody wants the run to end; remembered as its outcome."""
        if self.world.agree((self.folder / STOP).exists()):
            self.outcome = "stopped"
        return self.outcome == "stopped"

    def train(self, epoch: int) -> Iterator[Report]:
        """The rest of an epoch and its validation; sets `outcome` when the run must end."""
        progress, batch = self.progress, self.batch
        _, stage = self.schedule[epoch]
        order = shuffled(len(self.data.train), self.recipe.seed, epoch)
        begin = epoch * self.steps_per_epoch
        steps = range(progress.step, begin + self.steps_per_epoch)
        jobs = (
            partial(
                self.task.batch, epoch, step, stage.size, order[(step - begin) * batch :][:batch]
            )
            for step in steps
        )
        with closing(prefetch(jobs)) as batches:
            for step, (inputs, targets) in zip(steps, self.speed.timed(batches), strict=False):
                if self.must_stop():
                    self.save()
                    break
                photos = min(batch, len(order) - (step - begin) * batch)  # of all processes
                loss, right, rate = self.learn(inputs, targets, photos, stage.keep)
                if not math.isfinite(loss):
                    self.outcome = "failed"
                    break
                self.average.update(self.task.module, progress.step)
                progress.step += 1
                progress.loss_sum += loss * photos
                progress.loss_photos += photos
                progress.right += right
                progress.answers += photos
                self.speed.did_batch(photos)
                pace = self.speed.report(epoch, progress.step)
                yield Step(progress.step, epoch, loss, rate, *pace)
                # Not after the last step: a resumed run would leave the validation out.
                mid_epoch = progress.step % self.steps_per_epoch != 0
                if mid_epoch and time.monotonic() - self.saved_at > self.save_every:
                    self.save()
        if self.outcome == "failed":
            text = "The loss is no longer a number; the best weights so far are kept."
            yield Warned(progress.step, f"{text} Try a lower learning rate.")
        if self.outcome == "finished":
            yield from self.validate(epoch)
            if self.outcome == "finished":
                self.save()
        elif progress.best_score[0] < 0 and progress.step:
            yield from self.validate(epoch)  # so that something is kept

    def learn(
        self, inputs: Tensor, targets: Tensor, photos: int, keep: float
    ) -> tuple[float, int, float]:
        """One step on a batch of `photos` in all, of which `inputs` are this process's.

        Gives (loss, right answers before the step, rate). A loss or gradient that is no number
        changes no weight.
        """
        recipe, step = self.recipe, self.progress.step
        peak, warmup, smoothing = recipe.rate, recipe.warmup, recipe.smoothing
        assert peak is not None and warmup is not None and smoothing is not None
        torch.manual_seed(recipe.seed * 1_000_003 + step)
        rate = peak * rate_at(step, self.steps, warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        self.task.module.train()
        lower = recipe.precision == "bfloat16"
        # torch's fused attention runs backwards slowly in bfloat16 on a CPU: written out, a step
        # of ViT-Ti/16 takes 0.66 (128 pixels) to 0.75 (224 pixels) of the time.
        slow = lower and self.device.type == "cpu"
        with (
            torch.autocast(self.device.type, torch.bfloat16, enabled=lower),
            explicit_attention(self.model) if slow else nullcontext(),
            drop_path(self.model, recipe.drop_path, photos, self.world.mine),
        ):
            inputs, targets = inputs.to(self.device), targets.to(self.device)
            logits = self.forward(inputs, keep).float()
            wanted = self.teacher.answer(inputs).float() if self.teacher else None
        loss = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        if wanted is not None:
            loss = loss.lerp(disagreement(logits, wanted), recipe.teacher_share)
        loss = loss / photos  # not the mean: processes may have more or fewer photos, or none
        self.optimizer.zero_grad()
        (loss * self.world.size).backward()  # gradients will be divided by that
        norm = nn.utils.clip_grad_norm_(self.task.module.parameters(), recipe.clip)
        answered = (logits.argmax(1) == targets.argmax(1)).sum()
        everyone, right = self.world.totals(loss.item(), answered.item())
        if not (math.isfinite(everyone) and math.isfinite(norm.item())):
            return math.nan, 0, rate
        self.optimizer.step()
        return everyone, int(right), rate

    def validate(self, epoch: int) -> Iterator[Report]:
        """Count on the validation photos; keep the averaged weights when they are the best."""
        progress, (number, stage) = self.progress, self.schedule[epoch]
        began = time.perf_counter()
        logits, truth = self.task.validate(self.average.module, stage.size)
        self.speed.did_validation(epoch, time.perf_counter() - began)
        if not (logits.isfinite().all() and _fits_half(self.average.module)):
            self.outcome = "failed"
            text = "The weights have grown beyond all bounds; the best ones so far are kept."
            yield Warned(progress.step, f"{text} Try a lower learning rate.")
            return
        loss, answers = float(F.cross_entropy(logits, truth)), logits.argmax(1)
        val = Count(int((answers == truth).sum()), len(truth))
        best = (number, val.correct, -loss) > progress.best_score
        if best:
            progress.best_score = (number, val.correct, -loss)
            self.best = Evaluation(logits, truth, 0.0)
            # Few validation photos are less certain than what counts as unsure.
            unsure = float(logits.softmax(1).amax(1).quantile(UNSURE_SHARE))
            card = replace(
                self.card(),
                preprocess=replace(self.task.preprocess, size=stage.size),
                metrics={"validation": val},
                unsure_below=round(unsure, 4),
            )
            if self.world.leads:
                self.folder.stat()  # an error where somebody deleted it: it is not to come back
                checkpoint.save(self.folder / BEST, self.task.whole(self.average.module), card)
        train_loss = progress.loss_sum / max(1, progress.loss_photos)
        train = Count(progress.right, progress.answers)
        progress.loss_sum, progress.loss_photos = 0.0, 0
        progress.right, progress.answers = 0, 0
        yield Epoch(progress.step, epoch, train_loss, loss, val, best, train)
        if len(truth.unique()) > 1 and len(answers.unique()) == 1:
            name = self.data.classes[int(answers[0])]
            text = f"The model answers {name} for every validation photo: it has not learnt to "
            text += "tell the classes apart; train longer or change the rate."
            yield Warned(progress.step, text)

    def save(self) -> None:
        self.clock()
        self.saved_at = time.monotonic()
        if not self.world.leads:
            return
        module, progress = self.task.module, self.progress
        save_state(self.folder, module, self.average, self.optimizer, progress, self.origin)

    def clock(self) -> None:
        """Add what has passed to the seconds of this run."""
        now = time.monotonic()
        self.progress.seconds += now - self.began
        self.began = now

    def card(self) -> Card:
        """What the checkpoint says of itself, but for what validation and tests find."""
        source, recipe = self.start.card, self.recipe
        sets = {"train": self.data.train, "validation": self.data.val, **self.tests}
        training: dict[str, Any] = {
            "command": recipe.command(),
            "recipe": recipe.to_json(),
            "start": recipe.start,
            **self.start.record(),
            **(self.teacher.record() if self.teacher else {}),
            "data": self.data.fingerprint,
            "photos": {name: len(photos) for name, photos in sets.items()},
            "seed": recipe.seed,
            "precision": recipe.precision,
            "device": self.device.type,
            "versions": versions(),
        }
        return Card(
            config=self.model.config,
            preprocess=source.preprocess,
            classes=self.data.classes,
            title=recipe.name,
            training=training,
            licence=recipe.licence or source.licence,
            attribution=recipe.attribution or source.attribution,
        )

    def finish(self) -> Finished:
        """Count the best weights on every test set and give them their name."""
        step, outcome = self.progress.step, self.outcome
        self.task.close()
        if not self.world.leads or not (self.folder / BEST).exists():
            self.clock()
            return Finished(step, outcome, {}, self.progress.seconds, "")
        model, card = checkpoint.load(self.folder / BEST)
        model.to(self.device)
        metrics, val = dict(card.metrics), self.data.val
        best = self.best or evaluate(model, val, card.preprocess, card.classes)
        found = {"validation": (val, best)}
        for name, photos in self.tests.items():
            found[name] = photos, evaluate(model, photos, card.preprocess, card.classes)
            metrics[name] = found[name][1].top1
        self.clock()
        seconds = self.progress.seconds
        end = {"outcome": outcome, "steps": step, "seconds": round(seconds, 1)}
        card = replace(card, metrics=metrics, training={**card.training, **end})
        path = self.folder / f"{self.recipe.name}{checkpoint.SUFFIX}"
        checkpoint.save(path, model, card)
        write_outcome(self.folder, path, found)
        return Finished(step, outcome, metrics, seconds, str(path))


class _Forward(nn.Module):
    """A task's forward as a module around what is trained, which is what can be distributed."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.module, self.task = task.module, task

    def forward(self, inputs: Tensor, keep: float) -> Tensor:
        return self.task.forward(inputs, keep)


def versions() -> Mapping[str, str]:
    """Of what the numbers depend on."""
    packages = {name: version(name) for name in ("torchvision", "pillow")}
    return {"python": platform.python_version(), "torch": torch.__version__, **packages}


def _fits_half(module: nn.Module) -> bool:
    """Whether the weights are numbers that half precision, in which they are saved, can hold."""
    return all(bool(value.half().isfinite().all()) for value in module.state_dict().values())
