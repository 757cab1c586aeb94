"""Small programs as graphs, built in front of the reader: nested loops with known trip counts."""

from collections.abc import Sequence

from forerun.data.program import ProgramGraph

BODY = (
    "%a = load double*, double** %A.addr, align 8",
    "%x = load i32, i32* %i{last}, align 4",
    "%e = sext i32 %x to i64",
    "%p = getelementptr inbounds double, double* %a, i64 %e",
    "%v = load double, double* %p, align 8",
    "%s = load double, double* %sum, align 8",
    "%m = fmul double %v, %v",
    "%t = fadd double %s, %m",
    "store double %t, double* %sum, align 8",
)
"""sum += A[i] * A[i], i being the innermost loop's variable."""


def nested(trips: Sequence[int | str], body: Sequence[str] = BODY, start: int = 0) -> ProgramGraph:
    """Loops one inside the other, each from `start` to its bound, with places for directives.

    Args:
        trips: bound of each loop, outermost first; `%iN` is the variable of loop N.
        body: instructions of the innermost loop.
        start: first value of every variable.
    """
    texts: list[tuple[int, str]] = [(0, "%sum = alloca double, align 8")]
    last = len(trips) - 1
    jumps: list[tuple[int, int]] = []
    heads = []
    for n, bound in enumerate(trips):
        bound_line = [f"%b{n} = load i32, i32* {bound}, align 4"] if isinstance(bound, str) else []
        limit = f"%b{n}" if bound_line else str(bound)
        block = 1 + 2 * n
        texts += [(block - 1, f"store i32 {start}, i32* %i{n}, align 4"), (block - 1, "br label")]
        texts += [(block, f"%l{n} = load i32, i32* %i{n}, align 4")]
        texts += [(block, line) for line in bound_line]
        texts += [(block, f"%c{n} = icmp slt i32 %l{n}, {limit}"), (block, f"br i1 %c{n}")]
        heads.append(block)
    deepest = heads[-1] + 1
    texts += [(deepest, line.format(last=last)) for line in body] + [(deepest, "br label")]
    for n in reversed(range(len(trips))):
        block = deepest + (len(trips) - n)
        texts += [
            (block, f"%k{n} = load i32, i32* %i{n}, align 4"),
            (block, f"%n{n} = add nsw i32 %k{n}, 1"),
            (block, f"store i32 %n{n}, i32* %i{n}, align 4"),
            (block, "br label"),
        ]
        jumps.append((block, heads[n]))
        jumps.append((heads[n], block + 1))
    texts.append((deepest + len(trips) + 1, "ret void"))
    return _graph(texts, jumps, heads)


def _graph(
    texts: Sequence[tuple[int, str]], jumps: Sequence[tuple[int, int]], heads: Sequence[int]
) -> ProgramGraph:
    lines = sorted(texts, key=lambda pair: pair[0])
    first = {block: number for number, (block, _) in reversed(list(enumerate(lines)))}
    ends = {block: number for number, (block, _) in enumerate(lines)}
    fall = [
        (i, i + 1, 0, 0)
        for i in range(len(lines) - 1)
        if not any(i == ends[one] and one > other for one, other in jumps)
    ]
    edges = fall + [(ends[one], first[other], 0, 0) for one, other in jumps]
    places = [
        (head, f"#pragma ACCEL {word} auto{{__{kind}__L{n}}}")
        for n, head in enumerate(heads)
        for kind, word in (("PIPE", "PIPELINE"), ("TILE", "TILE"), ("PARA", "PARALLEL"))
    ]
    nodes = [(0, block, line) for block, line in lines] + [
        (3, block, line) for block, line in places
    ]
    return ProgramGraph(
        types=tuple(kind for kind, _, _ in nodes),
        texts=tuple(_short(line) for _, _, line in nodes),
        full_texts=tuple(line for _, _, line in nodes),
        edges=tuple(edges),
        blocks=tuple(block for _, block, _ in nodes),
        functions=(0,) * len(nodes),
    )


def _short(line: str) -> str:
    words = line.split()
    return words[2] if words[0].startswith(("%", "#")) else words[0]
