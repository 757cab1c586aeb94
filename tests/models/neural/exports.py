"""Networks of equal weights are exported once: an export takes longer than a test's training."""

from functools import wraps


def once_for_equal_weights(export):
    """`export`, called again only where weights or other arguments differ.

    A refit that ends with the same weights gets the file of the first, any other one a file of its
    own, so that predictors differ where they would without it.

    Args:
        export: maps a module, or several in a list, and hashable arguments to ONNX.

    Returns:
        The function, whose attribute `modules` maps each file, or tuple of files, to what it is of.
    """
    kept, modules = {}, {}

    @wraps(export)
    def once(module, *arguments):
        members = module if isinstance(module, list) else [module]
        weights = tuple(
            (name, value.numpy().tobytes())
            for one in members
            for name, value in one.state_dict().items()
        )
        if (arguments, weights) not in kept:
            kept[arguments, weights] = export(module, *arguments)
            modules[kept[arguments, weights]] = module
        return kept[arguments, weights]

    once.modules = modules
    return once
