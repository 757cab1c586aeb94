"""One test for many cases: all of them are tried, and every one that fails is named."""

import inspect
from functools import wraps


def for_every(names, cases):
    """Decorate a test as `pytest.mark.parametrize` does, to run all cases as one test.

    For thousands of small cases, each of which would cost more as a test than it computes. Cases
    share the fixtures of the test.

    Args:
        names: of arguments of the test, with commas between them.
        cases: a value for each test, or a tuple of them where there are several names.
    """
    arguments = [name.strip() for name in names.split(",")]

    def decorate(test):
        @wraps(test)
        def all_of_them(*given, **fixtures):
            failed, every = [], list(cases)
            for case in every:
                values = case if len(arguments) > 1 else (case,)
                try:
                    test(*given, **fixtures, **dict(zip(arguments, values, strict=True)))
                except Exception as error:
                    failed.append(f"{_label(case)}: {type(error).__name__}: {error}")
            assert every, "there are no cases"
            assert not failed, f"{len(failed)} of {len(every)} cases fail:\n" + "\n".join(failed)

        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in arguments]
        all_of_them.__signature__ = signature.replace(parameters=kept)
        return all_of_them

    return decorate


def _label(case):
    """The name of a case that has one; else its text."""
    return getattr(case, "name", None) or getattr(case, "__name__", None) or str(case)
