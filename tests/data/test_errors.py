"""The error hierarchy: one class per cause, each with a slug, a status and an exit code."""

from forerun.data import errors
from forerun.data.errors import InputError, UnknownDevice
from tests.every import for_every


def _tree(cls):
    return [cls, *(leaf for sub in cls.__subclasses__() for leaf in _tree(sub))]


@for_every("cls", _tree(InputError))
def test_every_error_is_one_that_the_caller_can_fix(cls):
    assert 400 <= cls.status < 600
    assert cls.exit_code == 2
    assert cls.slug == cls.slug.lower()
    assert cls.__doc__


def test_slugs_are_unique():
    slugs = [cls.slug for cls in _tree(InputError)]
    assert len(set(slugs)) == len(slugs)


def test_the_tree_drawn_in_the_docstring_is_the_tree():
    for cls in _tree(InputError):
        if cls.__module__ == errors.__name__:
            assert cls.__name__ in (errors.__doc__ or "")


def test_a_mistyped_device_gets_suggestions():
    error = UnknownDevice("RTX 4091", ["rtx-4090", "h100-sxm"])
    assert error.did_you_mean == ["rtx-4090"]
    assert "Did you mean rtx-4090?" in str(error)


def test_similar_devices_with_the_same_first_letter_come_first():
    error = UnknownDevice("H1000", ["rtx-a1000", "h100-sxm-80gb", "h100-pcie-80gb"])
    assert error.did_you_mean[-1] == "rtx-a1000"
    assert set(error.did_you_mean[:-1]) == {"h100-sxm-80gb", "h100-pcie-80gb"}
