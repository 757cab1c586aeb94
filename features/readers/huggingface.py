"""placeholder"""


class HuggingFaceReader:
    name = "x"

    def accepts(self, path, head):
        return False

    def read(self, source, **k):
        raise ValueError


def trace_callable(s):
    raise ValueError
