"""Numbers in text for people."""


def digits(value: float) -> str:
    """A number with four digits, and with zeros in place of a power of ten."""
    return f"{float(f'{value:.4g}'):,.12g}"
