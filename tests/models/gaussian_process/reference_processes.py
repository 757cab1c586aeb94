"""Reference Gaussian processes by scikit-learn for those of `forerun.models`."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel


class OnColumns(Kernel):
    """A covariance over some columns of a matrix; scikit-learn has none."""

    def __init__(self, kernel, first, after):
        self.kernel, self.first, self.after = kernel, first, after

    def __call__(self, rows, others=None, eval_gradient=False):
        other = None if others is None else others[:, self.first : self.after]
        found = self.kernel(rows[:, self.first : self.after], other)
        return (found, np.zeros((*found.shape, 0))) if eval_gradient else found

    def diag(self, rows):
        return self.kernel.diag(rows[:, self.first : self.after])

    def is_stationary(self):
        return False


class SameCode(Kernel):
    """1 where two rows have the same code in a column, else 0."""

    def __init__(self, column):
        self.column = column

    def __call__(self, rows, others=None, eval_gradient=False):
        other = rows if others is None else others
        found = (rows[:, self.column, None] == other[None, :, self.column]).astype(float)
        return (found, np.zeros((*found.shape, 0))) if eval_gradient else found

    def diag(self, rows):
        return np.ones(len(rows))

    def is_stationary(self):
        return False


def constant(value):
    """A variance that is not fitted."""
    return ConstantKernel(value, "fixed")


def reference(kernel, rows, values, noise):
    """The process of scikit-learn given noisy values, without a fit of its covariance."""
    process = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
    return process.fit(rows, values)
