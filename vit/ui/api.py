"""Named endpoints with plain inputs and outputs, for `gradio_client` and anything that speaks HTTP.

Their docstrings are what the API page shows.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NotRequired, TypedDict

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.components.api_component import Api
from gradio.events import api
from gradio.utils import get_function_description
from gradio_client.utils import is_file_obj_with_meta

from vit.classifier import Classifier, Prediction
from vit.images import Fit
from vit.ui.header import loaded
from vit.ui.many import BATCH, too_many
from vit.ui.page import MODEL_QUEUE
from vit.ui.words import api_error


class Dishes(TypedDict):
    """What is on a photo, the likeliest dish first."""

    labels: list[str]
    classes: list[str]  # the names the model was taught with
    probabilities: list[float]
    unsure: bool
    box: list[float]  # left, top, right, bottom of what the model saw, in pixels of the photo
    photo_size: list[int]  # width, height
    milliseconds: float
    checkpoint: str


class File(TypedDict):
    """One of many photos: its dishes, or the problem with it."""

    file: str
    dishes: NotRequired[Dishes]
    problem: NotRequired[str]


def public_endpoints(page: gr.Blocks, functions: Iterable[Callable]) -> None:
    """Each function becomes an endpoint of its own name. Its parameters are plain JSON, or files
    marked as gr.FileData and called photo or photos; its docstring has a line for each, and lines
    on what it returns, which Gradio joins with commas."""
    for function in functions:
        api(function, api_name=function.__name__, **MODEL_QUEUE)
        explain(list(page.fns.values())[-1])


def explain(endpoint: BlockFunction) -> None:
    """Put the docstring's words about each parameter and the result, and examples that work as they
    stand, on the API page."""
    assert endpoint.fn is not None
    _, texts, returns = get_function_description(endpoint.fn)
    (result,) = endpoint.outputs
    assert isinstance(result, Api)
    result.label = "result"
    result._api_info = {**result._api_info, "description": ", ".join(returns)}
    for component, (name, text) in zip(endpoint.inputs, texts.items(), strict=True):
        assert isinstance(component, Api)
        component.label = name
        component._api_info = {**component._api_info, "additional_description": text}
        example: object = component.value
        if name.startswith("photo"):
            file = {"path": "photo.jpg", "url": "photo.jpg", "meta": {"_type": "gradio.FileData"}}
            example = [file] if name == "photos" else file
        component.example_payload = lambda example=example: example


def classify(
    photo: gr.FileData, top: int = 5, fit: Fit | None = None, checkpoint: str = ""
) -> Dishes:
    """Which dish is on the photo? The likeliest dishes with their probabilities, and whether the
    model is unsure.

    Args:
        photo: The file: handle_file("photo.jpg") in Python; over MCP, as a data: address.
        top: How many dishes to name.
        fit: "crop" (the middle square), "letterbox" (the whole photo) or None (as it was taught).
        checkpoint: Name of the model; empty for the first one in the page's picker.

    Returns:
        "labels" and "probabilities" (the likeliest first)
        "classes" (the same as the model was taught them)
        "unsure" (true where none of its dishes looks right)
        "box" (what the model saw, in pixels of the photo)
    """
    try:
        _check(top, fit)
        _, path = uploaded(photo)
        classifier = loaded(checkpoint)
        return as_json(classifier.classify(path, top=top, fit=fit), classifier)
    except Exception as error:
        raise api_error(error) from error


def classify_many(
    photos: list[gr.FileData], top: int = 5, fit: Fit | None = None, checkpoint: str = ""
) -> list[File]:
    """Which dish is on each of many photos? Faster than one by one, and a photo that cannot be read
    does not stop the others.

    Args:
        photos: The files, each a handle_file("photo.jpg"); over MCP, call classify for each.
        top: How many dishes to name.
        fit: "crop" (the middle square), "letterbox" (the whole photo) or None (as it was taught).
        checkpoint: Name of the model; empty for the first one in the page's picker.

    Returns:
        for each photo (in their order) its name as "file"
        "dishes" (what /classify gives) or a "problem" (a sentence)
    """
    try:
        _check(top, fit)
        if not isinstance(photos, list):
            raise gr.Error("Send a list of photos.")
        if problem := too_many(len(photos)):
            raise gr.Error(problem)
        if not all(is_file_obj_with_meta(photo) for photo in photos):
            raise gr.Error(
                'Send each photo as a file, with handle_file("photo.jpg"); over MCP, call classify '
                "for each."
            )
        files = [uploaded(photo) for photo in photos]
        classifier = loaded(checkpoint)
        answers: list[File] = []
        for start in range(0, len(files), BATCH):  # so that few photos are in memory at a time
            batch = files[start : start + BATCH]
            found = classifier.classify_many([path for _, path in batch], top=top, fit=fit)
            answers += [
                File(file=name, dishes=as_json(answer, classifier))
                if isinstance(answer, Prediction)
                else File(file=name, problem=str(answer))
                for (name, _), answer in zip(batch, found, strict=True)
            ]
        return answers
    except Exception as error:
        raise api_error(error) from error


def as_json(prediction: Prediction, classifier: Classifier) -> Dishes:
    return {
        "labels": list(prediction.labels),
        "classes": list(prediction.classes),
        "probabilities": [round(share, 6) for share in prediction.probabilities],
        "unsure": prediction.unsure,
        "box": [round(edge, 2) for edge in prediction.box],
        "photo_size": list(prediction.photo_size),
        "milliseconds": round(prediction.milliseconds, 1),
        "checkpoint": classifier.name,
    }


def _check(top: object, fit: object) -> None:
    # The hints above are shown to callers but checked by nobody.
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise gr.Error("top must be a whole number above 0.")
    if fit not in ("crop", "letterbox", None):
        raise gr.Error('fit must be "crop", "letterbox" or None.')


def uploaded(photo: object) -> tuple[str, str]:
    """(name, path) of a file that came with the call.

    Gradio has checked that the file is an upload, but only for what is marked as a file; a bare
    path would be any file of this machine.
    """
    if not is_file_obj_with_meta(photo):
        raise gr.Error('Send the photo as a file, with handle_file("photo.jpg").')
    path = str(photo["path"])  # pyright: ignore[reportIndexIssue]
    return str(photo.get("orig_name") or Path(path).name), path  # pyright: ignore[reportAttributeAccessIssue]
