#!/usr/bin/python3
"""hami_region.py REGION QUESTION...: a region as HAMi's monitor has it, by offsets (layout 1.2).

header UUID MIB PERCENT  whether its first fields are these, byte for byte
used                     prints the MiB that processes of the first GPU hold, rounded down
processes COUNT          whether that many are in it
block, unblock           writes recent_kernel as the monitor does
lift, limit              writes utilization_switch as the monitor does: the compute limit is off, or on
launched                 whether last_kernel_time was within the last two minutes, and recent_kernel is not negative
"""
import mmap
import struct
import sys
import time

SIZE = 2008952
UUIDS, LIMITS, SM_LIMITS, SLOTS, SLOT_SIZE = 64, 1600, 1728, 1856, 1960
SLOT_COUNT, UTILIZATION_SWITCH, RECENT_KERNEL, LAST_KERNEL_TIME = 2008896, 2008900, 2008904, 2008912
SLOT_TOTAL, SLOT_STATUS = 8 + 32, 1928


def word(region, form, offset):
    return struct.unpack_from("<" + form, region, offset)[0]


def is_header(region, uuid, mib, percent):
    expected = (
        (0, struct.pack("<iII", 19920718, 1, 2)),
        (56, struct.pack("<Q", 1)),
        (UUIDS, uuid.encode().ljust(96, b"\0") + bytes(15 * 96)),
        (LIMITS, struct.pack("<16Q", int(mib) << 20, *[0] * 15)),
        (SM_LIMITS, struct.pack("<16Q", int(percent), *[0] * 15)),
    )
    wrong = [offset for offset, data in expected if region[offset:offset + len(data)] != data]
    for offset in wrong:
        print(f"not HAMi's at {offset}: {region[offset:offset + 96]}", file=sys.stderr)
    return not wrong and len(region) >= SIZE


def slots(region):
    for index in range(word(region, "i", SLOT_COUNT)):
        start = SLOTS + index * SLOT_SIZE
        if word(region, "i", start + SLOT_STATUS) != 0:
            yield start


def main():
    path, question, *arguments = sys.argv[1:]
    with open(path, "r+b") as file:
        region = mmap.mmap(file.fileno(), 0)
    if question == "header":
        return is_header(region, *arguments)
    if question == "used":
        print(sum(word(region, "Q", start + SLOT_TOTAL) for start in slots(region)) >> 20)
        return True
    if question == "processes":
        return len(list(slots(region))) == int(arguments[0])
    if question in ("block", "unblock"):
        struct.pack_into("<i", region, RECENT_KERNEL, -1 if question == "block" else 0)
        return True
    if question in ("lift", "limit"):
        struct.pack_into("<i", region, UTILIZATION_SWITCH, 0 if question == "lift" else 1)
        return True
    if question == "launched":
        last = word(region, "q", LAST_KERNEL_TIME)
        return time.time() - last < 120 and word(region, "i", RECENT_KERNEL) >= 0
    raise SystemExit(__doc__)


sys.exit(0 if main() else 1)
