"""The photos of a run: opened, checked, and what was left out said and listed."""

import os
from dataclasses import replace

from vit.data import DataError, DataSet, left_out, open_data, open_photos
from vit.evaluate import class_numbers
from vit.photoset import PhotoSet, few_of_each, in_both
from vit.recipe import Recipe
from vit.runstate import SKIPPED


class RunPhotos:
    """What a run learns from and chooses by (`data`), and is counted on at the end (`tests`).

    `warnings` are sentences for a person; `skipped` is everything left out, by place. Without
    `data` the recipe's is read. DataError for what cannot be trained or counted on.
    """

    def __init__(self, recipe: Recipe, data: DataSet | None) -> None:
        self.data = data or open_data(
            recipe.data,
            val_fraction=recipe.val_fraction,
            seed=recipe.seed,
            val=recipe.val,
            extra=recipe.extra,
        )
        if not len(self.data.val):
            raise DataError("There are no validation photos; give each class two photos or more.")
        self.skipped = skipped = {recipe.data: list(self.data.skipped)}
        self.warnings: list[str] = []
        self.tests: dict[str, PhotoSet] = {}
        if self.data.test is not None:
            self.tests["test"] = self.data.test
        for entry in recipe.test:  # opened now, so that a typing error is met at once
            name, _, place = entry.partition("=")
            if name in self.tests:
                raise DataError(f"{recipe.data} has a set called {name}; name {place} otherwise.")
            self.tests[name] = open_photos(place, check=True, skipped=skipped.setdefault(place, []))
            class_numbers(self.tests[name], self.data.classes)
            if not len(self.tests[name]):
                raise DataError(f"{place} has no readable photo; count on another set.")
        for place, files in skipped.items():
            if files:
                listed = f"{SKIPPED} in the run's folder lists them"
                name = os.path.basename(os.path.abspath(place))
                self.warnings.append(f"{left_out(files)} left out of {name}; {listed}.")
        for name, photos in self.tests.items():
            if seen := in_both(photos, self.data.train, self.data.val):
                self.warnings.append(
                    f"{len(seen)} of {len(photos)} photos of the test set {name} are training or "
                    f"validation photos too, such as {seen[0]}: its count will flatter the model."
                )
        if recipe.per_class is not None:
            fewer = few_of_each(self.data.train, recipe.per_class, recipe.seed)
            self.data = replace(self.data, train=fewer)
