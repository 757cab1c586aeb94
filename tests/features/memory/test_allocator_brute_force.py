"""The allocator against a plain reading of its source: blocks in lists, searched one by one."""

from hypothesis import example, given

from forerun.features.memory.allocator import Peaks, peaks
from tests.features.memory.test_allocator import runs

MIB = 2**20


class Plain:
    """c10/cuda/CUDACachingAllocator.cpp without its indices: a list of segments of [size, taken].

    Blocks are merged by walking over their segment; a free block is found by trying all of them,
    the smallest first and of equal ones the one at the lowest address.
    """

    def __init__(self):
        self.segments = {True: [], False: []}
        self.next = {True: 0, False: 1 << 60}

    def allocate(self, size):
        need = max(512, (size + 511) // 512 * 512)
        small = need <= MIB
        free = [
            (block[0], address, segment, place)
            for segment in self.segments[small]
            for place, (block, address) in enumerate(zip(segment, addresses(segment), strict=True))
            if not block[1] and block[0] >= need
        ]
        if not free:
            if small:
                length = 2 * MIB
            elif need < 10 * MIB:
                length = 20 * MIB
            else:
                length = (need + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            segment = [[length, False, self.next[small]]]
            self.next[small] += length
            self.segments[small].append(segment)
            free = [(length, 0, segment, 0)]
        length, _, segment, place = min(free, key=lambda one: one[:2])
        block = segment[place]
        rest = length - need
        if rest >= 512 if small else rest > MIB:
            segment.insert(place + 1, [rest, False, block[2] + need])
            block[0] = need
        block[1] = True
        return segment, block

    def free(self, handed):
        segment, block = handed
        block[1] = False
        place = 0
        while place + 1 < len(segment):
            if segment[place][1] or segment[place + 1][1]:
                place += 1
            else:
                segment[place][0] += segment.pop(place + 1)[0]

    def live(self):
        return sum(b[0] for kind in self.segments.values() for s in kind for b in s if b[1])

    def reserved(self):
        return sum(b[0] for kind in self.segments.values() for s in kind for b in s)


def addresses(segment):
    return [block[2] for block in segment]


def plain_peaks(events, sizes):
    device, handed, live = Plain(), {}, 0
    for event in events:
        if event >= 0:
            handed[event] = device.allocate(sizes[event])
        else:
            device.free(handed.pop(~event))
        live = max(live, device.live())
    return Peaks(live, device.reserved())


def of_mib(events, *sizes):
    return example((events, [size * MIB for size in sizes]))


@given(runs())
@of_mib([0, 1, 2, ~0, ~2, ~1, 3], 6, 6, 6, 18)  # free neighbours become one block
@of_mib([0, 1, ~0, ~1, 2], 12, 12, 24)  # but not over segments
@of_mib([0, 1, ~0, ~1, 2, 3], 40, 20, 16, 40)  # the smallest that fits is taken
@of_mib([0, ~0, 1], 20, 19)  # and not split for a small rest
def test_peaks_are_those_of_a_plain_reading_of_the_source(run):
    assert peaks(*run) == plain_peaks(*run)
