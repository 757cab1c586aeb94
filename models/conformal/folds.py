"""Cross-validation over whole groups: the rows of a group are never split between folds."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from forerun.data.shapes import Bool, Float64, Text


def held_out_folds(
    groups: Text[np.ndarray, " n"], folds: int | None = None, seed: int = 0
) -> Iterator[Bool[np.ndarray, " n"]]:
    """Masks of the rows to hold out, shapes (n,); no group is split between folds.

    Like scikit-learn's `GroupKFold` and `LeaveOneGroupOut`, but groups are assigned to folds by a
    seed, independently of the order and the number of rows.

    Args:
        groups: n labels.
        folds: number of folds, at most the number of groups. By default each group is held out by
            itself, in the order of their names.
        seed: assigns groups to folds.

    Yields:
        One mask for each fold; none with fewer than two groups, since nothing would remain to fit.
    """
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        return
    fold_of = np.arange(len(names))
    if folds is not None:
        order = np.random.default_rng(seed).permutation(len(names))
        fold_of[order] = np.arange(len(names)) % folds
    for fold in range(int(fold_of.max()) + 1):
        yield fold_of[group] == fold


def out_of_fold(
    groups: Text[np.ndarray, " n"],
    predict: Callable[
        [Bool[np.ndarray, " n"]],
        Float64[np.ndarray, " held"] | Sequence[Float64[np.ndarray, " held"]] | float,
    ],
    *,
    folds: int | None = None,
    seed: int = 0,
    columns: int = 1,
) -> Float64[np.ndarray, "{columns} n"]:
    """Predict every row with a fit that excludes the row's group.

    Args:
        groups: n labels.
        predict: mask (n,) of the rows to hold out -> predictions of these rows by a fit on the
            other rows: an array, one array per column, or NaN where nothing could be fitted.
        folds: as in `held_out_folds`.
        seed: as in `held_out_folds`.
        columns: number of predicted quantities.

    Returns:
        Shape (columns, n); NaN with fewer than two groups.
    """
    predictions = np.full((columns, len(groups)), np.nan)
    for held in held_out_folds(groups, folds, seed):
        predictions[:, held] = predict(held)
    return predictions
