"""Names for the types of arrays with n rows, whose shapes docstrings give."""

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
"""Numbers, mostly of shape (n,)."""
Matrix = NDArray[np.float64]
"""Numbers of shape (n, columns)."""
Mask = NDArray[np.bool_]
"""Whether something holds for each row, mostly of shape (n,)."""
Names = NDArray[np.str_]
"""Texts: labels of strata or groups, mostly of shape (n,)."""
Positions = NDArray[np.intp]
"""Positions of rows, or codes of their groups."""
