"""Laws that hold of any answer, whatever was measured: one answer against another."""

from importlib import import_module


def all_laws() -> tuple[str, ...]:
    """Names of all laws."""
    for module in ("within_physics", "on_devices", "on_loads", "of_options", "through_doors"):
        import_module(f"tests.metamorphic.{module}")
    from tests.metamorphic.law import LAWS

    return tuple(LAWS)
