"""What a training run is told: one value for the command line, the form and the checkpoint."""

import math
import shlex
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from typing import Any, Self, get_args

from vit.augment import Augment
from vit.defaults import MODES, defaults, way_of
from vit.model import PRESETS
from vit.names import plain
from vit.precision import PRECISIONS

# Values without an effect.
_IDLE = {"layer_decay": 1, "min_area": 1, "colour": 0, "blur": 0, "grain": 0, "drop_path": 0}


def _option(help: str, default: Any = None, **rest: Any) -> Any:
    """A setting; `rest` may hold its flag, its limits (_LIMITS) and the values it is `among`."""
    return field(default=default, metadata={"help": help, **rest})


_LIMITS = {
    "least": ("at least", lambda value, limit: value >= limit),
    "above": ("above", lambda value, limit: value > limit),
    "below": ("below", lambda value, limit: value < limit),
    "most": ("at most", lambda value, limit: value <= limit),
}


@dataclass(frozen=True)
class Stage:
    """Some epochs at one picture size (height, width); each step sees a share of the patches."""

    size: tuple[int, int]
    epochs: int
    keep: float = 1.0


@dataclass(frozen=True)
class Recipe:
    """The settings of a run. None means: what suits the way of training, see `completed`.

    Raises ValueError, naming the setting, for values that cannot be trained with.
    """

    data: str = _option("folder or zip of class folders", MISSING)
    start: str = _option(
        "what to start from: a checkpoint, a weights file, or a preset such as Ti/16 for scratch",
        "food101",
        flag="--from",
    )
    name: str = _option("name of the new checkpoint", "my-dishes")
    mode: str | None = _option(
        "what is trained: head (seconds; the default with trained weights), last (the last blocks "
        "and the head) or all (every weight)",
        among=MODES,
    )
    blocks: int | None = _option(
        "blocks at the end that are trained in mode last", least=1, modes=("last",)
    )
    extra: tuple[str, ...] = _option("more folders of the same classes to train on", ())
    val: str | None = _option("photos to choose by; without it a part of the training photos")
    val_fraction: float = _option(
        "share of the training photos to choose by", 0.15, above=0, below=1
    )
    per_class: int | None = _option("use at most so many training photos of a class", least=1)
    test: tuple[str, ...] = _option("NAME=FOLDER to count on at the very end", ())
    epochs: int | None = _option("times that every photo is seen", least=1)
    image_size: str | None = _option(
        "pixels, or stages as PIXELS:EPOCHS or PIXELS:EPOCHS:SHARE, the share of the patches that "
        "each step trains on, e.g. 128:3,224:1:0.5; without it the size of the start"
    )
    batch: int | None = _option("photos in a step", least=1)
    rate: float | None = _option("peak learning rate", above=0)
    layer_decay: float | None = _option(
        "rate of each block relative to the one above it", above=0, most=1, modes=("last", "all")
    )
    weight_decay: float = _option("AdamW's weight decay", 0.05, least=0)
    warmup: float | None = _option("share of the steps in which the rate rises", least=0, below=1)
    smoothing: float | None = _option("label smoothing", least=0, below=1)
    clip: float = _option("largest norm of the gradient", 1.0, above=0)
    ema: float | None = _option("decay of the averaged weights; 0 for none", least=0, below=1)
    drop_path: float = _option(
        "share of the photos for which the last block's branches are left out at random while "
        "training; for the blocks before it less, down to none",
        0.0,
        least=0,
        below=1,
        modes=("last", "all"),
    )
    registers: int | None = _option(
        "register tokens; without it as many as the start has", least=0, modes=("all",)
    )
    views: int | None = _option(
        "pictures that mode last makes of each photo, once: itself, its mirror image, then random "
        "crops; without it as many as that needs",
        least=1,
        most=100,
        modes=("last",),
    )
    min_area: float | None = _option(
        "smallest share of a photo that a random crop keeps", above=0, most=1, modes=("last", "all")
    )
    flip: bool | None = _option(
        "mirror half of the photos; without it in every mode but head, which trains no better with "
        "mirror images and takes twice as long"
    )
    colour: float | None = _option(
        "strength of random colour changes", least=0, most=1, modes=("last", "all")
    )
    blur: float = _option(
        "share of photos shown at a lower resolution", 0.0, least=0, most=1, modes=("last", "all")
    )
    grain: float = _option(
        "strength of random sharpening and noise, for photos that are all small",
        0.0,
        least=0,
        most=1,
        modes=("last", "all"),
    )
    mixup: float | None = _option(
        "photos, or what frozen blocks made of them, are mixed in pairs, and their labels too, in "
        "shares of Beta(mixup, mixup); 0 for none",
        least=0,
    )
    teacher: str | None = _option(
        "a checkpoint with the same classes, whose answers are learned from beside the labels",
        modes=("all",),
    )
    teacher_share: float = _option(
        "share of the loss that tells how far from the teacher's the answers are",
        0.5,
        above=0,
        most=1,
        modes=("all",),
    )
    precision: str = _option(
        "number format of the arithmetic: float32 or bfloat16", "float32", among=PRECISIONS
    )
    seed: int = _option("same seed, same losses on the same machine", 0, least=0, below=2**32)
    memory: int = _option(
        "megabytes of what frozen blocks made of the photos that a process keeps in memory; more "
        "goes into a file in the run's folder until its end",
        1000,
        least=0,
        modes=("head", "last"),
    )
    threads: int | None = _option("processor threads for the arithmetic", least=1)
    licence: str = _option("licence written into the checkpoint", "")
    attribution: str = _option("whom the checkpoint owes what", "")

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check(setting, getattr(self, setting.name))
        for name in ("data", "start"):
            if not getattr(self, name):
                raise ValueError(f"{name} must be given.")
        if not self.name or self.name[0] in ".-" or set(self.name) & set('/\\:\0"<>|?*'):
            raise ValueError(
                f'{plain(self.name, 60)} cannot be a name: it has none of / \\ : * ? " < > | and '
                "begins with no dot or dash."
            )
        if self.name in ("best", "state"):
            raise ValueError(f"name must not be {self.name}, which a run's folder uses itself.")
        for entry in self.test:
            name, equals, place = entry.partition("=")
            if not (name and equals and place) or name == "validation":
                raise ValueError(
                    f"test must be NAME=FOLDER, and NAME not validation, got {entry!r}."
                )
        if len({entry.partition("=")[0] for entry in self.test}) < len(self.test):
            raise ValueError(f"test must name each set differently, got {' '.join(self.test)}.")
        stages = self.stages((0, 0))
        if self.epochs is not None and self.epochs != sum(stage.epochs for stage in stages):
            raise ValueError(f"epochs, {self.epochs}, contradicts the stages {self.image_size}.")
        if self.way in ("head", "last"):
            self._check_frozen(stages)
        self._check_modes()

    def _check_frozen(self, stages: tuple[Stage, ...]) -> None:
        """Of ways in which some blocks see every photo only once, and are not trained."""
        if self.start in PRESETS:
            raise ValueError(
                f"From scratch ({self.start}) every weight must be trained: choose mode all, or "
                f"start from trained weights."
            )
        if stages[1:] or stages[0].keep < 1:
            raise ValueError(
                f"Mode {self.way} looks at every photo once: leave out the stages of image_size, "
                f"or choose mode all."
            )

    def _check_modes(self) -> None:
        """ValueError for a setting that would have no effect."""
        mode = self.mode or ("all" if self.way == "scratch" else "head")
        useless = [
            setting.name
            for setting in fields(self)
            if mode not in setting.metadata.get("modes", MODES)
            and getattr(self, setting.name) not in (setting.default, _IDLE.get(setting.name))
        ]
        if useless:
            raise ValueError(f"Mode {mode} does nothing with {', '.join(useless)}: leave it out.")
        if self.teacher is None and self.teacher_share != Recipe.teacher_share:
            raise ValueError("teacher_share needs a teacher: name one, or leave it out.")
        mirrored = self.flip is not False
        if mode == "last" and (self.views or 2) <= 1 + mirrored:
            random = [
                name
                for name in ("min_area", "colour", "blur", "grain")
                if getattr(self, name) not in (None, _IDLE[name])
            ]
            if random:
                raise ValueError(
                    f"{', '.join(random)} can only change views beside the photo and its mirror "
                    f"image: set views to {3 + mirrored} or more."
                )

    @property
    def way(self) -> str:
        """What `completed` goes by: head, last, all, or scratch."""
        return way_of(self.start, self.mode)

    def completed(self, photos: int | None = None) -> Self:
        """With every None filled in that depends on the way of training, and on how many `photos`
        there are to train on (some hundred when that is not known yet)."""
        open_ones = defaults(self.way, photos).items()
        values: dict[str, Any] = {k: v for k, v in open_ones if getattr(self, k) is None}
        values["epochs"] = sum(stage.epochs for stage in self.stages((0, 0), photos))
        return replace(self, **values)

    def stages(self, own: tuple[int, int], photos: int | None = None) -> tuple[Stage, ...]:
        """What is trained at which picture size, in order; `own` is the size of the start."""
        epochs = self.epochs or defaults(self.way, photos)["epochs"]
        return (
            (Stage(own, epochs),) if self.image_size is None else _stages(self.image_size, epochs)
        )

    @property
    def augment(self) -> Augment:
        """How training photos are changed."""
        full = self.completed()
        assert full.min_area is not None and full.colour is not None
        assert full.flip is not None and full.mixup is not None
        return Augment(full.min_area, full.flip, full.colour, full.blur, full.grain, full.mixup)

    def command(self) -> str:
        """The command line that repeats the run."""
        options: list[str] = []
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name == "data" or value == setting.default:
                continue
            flag = _flag(setting)
            if isinstance(value, bool):
                options.append(flag if value else flag.replace("--", "--no-", 1))
                continue
            texts = [str(v) for v in value] if isinstance(value, tuple) else [str(value)]
            if any(text.startswith("-") for text in texts):  # or they would pass for options
                options += [f"{flag}={text}" for text in texts]
            else:
                options += [flag, *texts]
        data = ["--", self.data] if self.data.startswith("-") else [self.data]
        words = [*options, *data] if len(data) > 1 else [*data, *options]
        return shlex.join(["python", "train.py", *words])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The recipe that `to_json` described; ValueError for unknown fields or bad values."""
        if not isinstance(values, Mapping):
            raise ValueError(f"This is not a recipe: {str(values)[:50]!r}.")
        unknown = sorted(set(values) - {setting.name for setting in fields(cls)})
        if unknown or "data" not in values:
            raise ValueError(f"This is not a recipe: {', '.join(unknown) or 'data is missing'}.")
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        return cls(**settings)

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """One argument for each setting, named after it."""
        for setting in fields(cls):
            help, default = setting.metadata["help"].replace("%", "%%"), setting.default
            if setting.name == "data":
                parser.add_argument("data", help=help, nargs="?")
                continue
            options: dict[str, Any] = {"dest": setting.name, "default": default, "help": help}
            if _kind(setting) is bool:
                options["action"] = BooleanOptionalAction
            elif default == ():
                options |= {"action": "extend", "nargs": "+", "default": None}
            else:
                options["type"] = _kind(setting)
                options["help"] += f" [{default}]" if default not in (None, "") else ""
            if "action" not in options or "nargs" in options:
                options["metavar"] = setting.name.upper()
            parser.add_argument(_flag(setting), **options)

    @classmethod
    def from_arguments(cls, arguments: Namespace) -> Self:
        """The recipe of a parsed command line; ValueError for bad values."""
        values: dict[str, Any] = {}
        for setting in fields(cls):
            value = getattr(arguments, setting.name)
            values[setting.name] = tuple(value or ()) if setting.default == () else value
        return cls(**values)


def _flag(setting: Field) -> str:
    return setting.metadata.get("flag", "--" + setting.name.replace("_", "-"))


def _kind(setting: Field) -> type:
    """The type of a setting's value, or of one of its values."""
    return next(iter(get_args(setting.type)), setting.type)  # pyright: ignore[reportReturnType]


def _check(setting: Field, value: object) -> None:
    """ValueError when the value is of another type than the setting's, or beyond its limits."""
    if value is None and setting.default is None:
        return
    kind = _kind(setting)
    if setting.default == ():
        right = isinstance(value, tuple) and all(isinstance(v, str) for v in value)
    elif kind is float:
        right = type(value) in (int, float) and math.isfinite(value)  # pyright: ignore[reportArgumentType]
    else:
        right = type(value) is kind
    if not right:
        names = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}
        raise ValueError(f"{setting.name} must be {names[kind]}, got {value!r}.")
    among = setting.metadata.get("among")
    if among and value not in among:
        raise ValueError(f"{setting.name} must be one of {', '.join(among)}, got {value!r}.")
    limits = {word: setting.metadata[word] for word in _LIMITS if word in setting.metadata}
    if not all(_LIMITS[word][1](value, limit) for word, limit in limits.items()):
        wanted = " and ".join(f"{_LIMITS[word][0]} {limit:,}" for word, limit in limits.items())
        raise ValueError(f"{setting.name} must be {wanted}, got {value}.")


def _stages(text: str, epochs: int) -> tuple[Stage, ...]:
    stages: tuple[Stage, ...] = ()
    try:
        parts = [part.split(":") for part in text.split(",")]
        if parts == [[text]]:
            parts = [[text, str(epochs)]]
        if all(len(part) in (2, 3) for part in parts):
            stages = tuple(Stage((int(p), int(p)), int(n), *map(float, k)) for p, n, *k in parts)
    except ValueError:
        pass
    if not stages or any(min(s.size) < 1 or s.epochs < 1 or not 0 < s.keep <= 1 for s in stages):
        raise ValueError(
            f"image_size must be pixels such as 224, or stages such as 128:3,224:1:0.5; "
            f"got {text!r}."
        )
    return stages
