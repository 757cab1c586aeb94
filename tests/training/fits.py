"""The fits of one fold, in this process."""

from forerun.training.evaluation.evaluate import fit_and_predict, fold_jobs


def predictions_of(protocols, fold, shots=(0,), seeds=1, predictors=()):
    """Predictions of the tasks of a fold, by every seed and predictor, at every number of shots."""
    jobs = fold_jobs(protocols, fold, shots, seeds, predictors, refit=None)
    return [found for job in jobs for found in fit_and_predict(*job.arguments)]
