"""What a program asks vgpud for, and hostile programs (turn_offer.h has the messages).

turns.py COMMAND SOCKET REGION UUID [MORE]: exits with 0 if all was as it should be."""

import array
import ctypes
import errno
import fcntl
import mmap
import os
import random
import resource
import signal
import socket
import struct
import sys
import time

MAGIC = 0x314F4E5255545056
SIZE = 331776
FILE, SAME, REFUSED = range(3)
F_GET_SEALS = 1034
F_OFD_GETLK, F_OFD_SETLK = 36, 37
libc = ctypes.CDLL(None, use_errno=True)


def connect(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(10)
    for _ in range(5000):
        try:
            s.connect(path)
            return s
        except BlockingIOError:  # vgpud's queue is full
            time.sleep(0.002)
    raise AssertionError("vgpud accepts nobody")


def request(uuid, have=(0, 0), version=1, magic=MAGIC):
    return struct.pack("<QIIQQ96s", magic, version, 0, have[0], have[1], uuid.encode())


def send(path, message, fds):
    s = connect(path)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    s.sendmsg([message], rights)
    return s


def hear(s):
    """The answer's kind and descriptor; None where vgpud has ended the connection."""
    message, fds, _, _ = socket.recv_fds(s, 4096, 4)
    if not message:
        return None, None
    magic, version, kind = struct.unpack("<QII", message)
    assert magic == MAGIC and version == 1 and len(fds) == (kind == FILE)
    return kind, fds[0] if fds else None


def ask(path, uuid, region, flags=os.O_RDWR, **more):
    fd = os.open(region, flags)
    with send(path, request(uuid, **more), [fd]) as s:
        os.close(fd)
        return hear(s)


def given(path, region, uuid):
    kind, fd = ask(path, uuid, region)
    assert kind == FILE, kind
    return fd


def until_known(path, region, uuid):
    """Of a slice that is younger than its last look, vgpud knows nothing most of the time."""
    row = 0
    for _ in range(200):
        kind, fd = ask(path, uuid, region)
        if kind == FILE:
            os.close(fd)
            row += 1
            if row == 3:
                return
        else:
            row = 0
            time.sleep(0.05)
    raise AssertionError("vgpud does not know the slice")


def least_length(path, region, uuid, wanted_ns):
    """The word of the file that says how long a turn lasts at least."""
    until_known(path, region, uuid)
    fd = given(path, region, uuid)
    words = mmap.mmap(fd, SIZE)
    for _ in range(3000):
        found = struct.unpack_from("<Q", words, 24)[0]
        if found == int(wanted_ns):
            return
        time.sleep(0.01)
    raise AssertionError(found)


def weights(words, entry):
    """The entry's weight and share, and where they are in the file."""
    at = 4096 + 1024 * entry + 8
    return struct.unpack_from("<II", words, at), at


def entry_of(words, weight):
    """The entry of the slice that has that weight, when its program has come to this file."""
    for _ in range(6000):
        for entry in range(64):
            if weights(words, entry)[0] == (weight, weight):
                return entry
        time.sleep(0.01)
    raise AssertionError(f"no slice has the weight {weight}")


def overwrite(path, region, uuid, weight, wrong):
    """The slice of that weight gets another, and that one share: both are right again in some seconds."""
    words = mmap.mmap(given(path, region, uuid), SIZE)
    entry = entry_of(words, int(weight))
    struct.pack_into("<II", words, weights(words, entry)[1], int(wrong), int(wrong))
    for _ in range(1000):
        if weights(words, entry)[0] == (int(weight), int(weight)):
            return
        time.sleep(0.01)
    raise AssertionError(weights(words, entry))


def nobody(path, region, uuid):
    """An entry that is alive and of no slice has the least weight, some seconds later."""
    fd = given(path, region, uuid)
    words = mmap.mmap(fd, SIZE)
    entry = 40
    struct.pack_into("<QII", words, 4096 + 1024 * entry, 12345, 100, 100)
    time.sleep(4.5)
    assert weights(words, entry)[0] == (100, 100)  # nobody lives there
    assert lock(fd, F_OFD_SETLK, 4096 * entry)
    for _ in range(1000):
        if weights(words, entry)[0] == (1, 1):
            return
        time.sleep(0.01)
    raise AssertionError(weights(words, entry))


def not_read(path, region, uuid, broken, weight):
    """Of two living entries of no region, the one that may be of the broken region gets that weight, the other 1."""
    fd = given(path, region, uuid)
    words = mmap.mmap(fd, SIZE)
    wanted = {42: int(weight), 43: 1}
    for entry, inode in ((42, os.stat(broken).st_ino), (43, os.stat(broken).st_ino + 1)):
        key = inode * 0x9E3779B97F4A7C15 % 2**64
        struct.pack_into("<QII", words, 4096 + 1024 * entry, key, 100, 100)
        assert lock(fd, F_OFD_SETLK, 4096 * entry)
    for _ in range(1000):
        if all(weights(words, entry)[0] == (right, right) for entry, right in wanted.items()):
            break
        time.sleep(0.01)
    else:
        raise AssertionError([weights(words, entry) for entry in wanted])
    print("right", flush=True)
    time.sleep(600)


def doubled(path, region, uuid, weight):
    """A slice that has two entries has its weight once."""
    fd = given(path, region, uuid)
    words = mmap.mmap(fd, SIZE)
    entry = entry_of(words, int(weight))
    other = 41
    key = struct.unpack_from("<Q", words, 4096 + 1024 * entry)[0]
    struct.pack_into("<QII", words, 4096 + 1024 * other, key, int(weight), int(weight))
    assert lock(fd, F_OFD_SETLK, 4096 * other)
    half = (int(weight) // 2, int(weight) // 2)
    for _ in range(1000):
        if weights(words, entry)[0] == half and weights(words, other)[0] == half:
            break
        time.sleep(0.01)
    else:
        raise AssertionError((weights(words, entry), weights(words, other)))
    os.close(fd)
    struct.pack_into("<Q", words, 4096 + 1024 * other, 0)
    entry_of(words, int(weight))


def liar(path, region, uuid, weight):
    """The slice's program writes a weight above its policy, until it is given no file any more."""
    words = mmap.mmap(given(path, region, uuid), SIZE)
    entry = entry_of(words, int(weight))
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for _ in range(10):
            struct.pack_into("<II", words, weights(words, entry)[1], 100, 100)
            time.sleep(0.02)
        if ask(path, uuid, region)[0] == REFUSED:
            return
    raise AssertionError("it is never refused")


# Where the words of an entry are (vgpu_turns.h).
ENTRY, WORDS = 1024, 64 * 1024
KEY, WEIGHT, IDLE_SINCE, BUSY_UNTIL, SEEN, USED_NS = 0, 8, 32, 40, 48, 56
PRESENT, TURN, SEATS, SEAT = 72, 64, 4096 + WORDS, 64


def launches_of(seen):
    """How often the program (steered.c) has launched."""
    with open(seen) as file:
        return int(file.read().split()[1])


def until_goes_on(seen, lie):
    """Tells the lie again and again until the program has launched on, and 100 times at least."""
    before, rounds, end = launches_of(seen), 0, time.monotonic() + 60
    while rounds < 100 or launches_of(seen) < before + 20:
        assert time.monotonic() < end, "the honest slice makes no progress"
        lie()
        rounds += 1
        time.sleep(0.002)


def lies(path, region, uuid, weight, other_weight, seen):
    """The slice's program writes words of the file in its own favour, and noise into its entry. The slice of the
    other weight, whose program writes SEEN, goes on. In the end it writes its weight, too, until it is refused."""
    words = mmap.mmap(given(path, region, uuid), SIZE)
    mine, other = entry_of(words, int(weight)), entry_of(words, int(other_weight))
    noise = random.Random(1)

    def now():
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)

    def put(entry, word, *values):
        struct.pack_into("<%dQ" % len(values), words, 4096 + ENTRY * entry + word, *(v % 2**64 for v in values))

    def take_turn(holder, ahead_ns=0):
        begin = (now() + ahead_ns >> 10) % 2**32
        struct.pack_into("<Q", words, TURN, 1 + holder | 0x80 | begin << 32)

    def use_nothing():
        put(mine, USED_NS, 0, -(10**15))  # and weighted_ns

    def be_busy():
        put(mine, BUSY_UNTIL, now() + 10**12, now())

    def hide_other():
        put(other, IDLE_SINCE, now(), now() + 10**12)  # and busy_until
        words[PRESENT : PRESENT + 8] = bytes(8)

    def take_seats():
        for seat in range(4096):
            struct.pack_into("<II", words, SEATS + SEAT * seat, 1 + mine | noise.getrandbits(25) << 7, 1)

    def write_noise(first=KEY):
        """From that word on, but for the key, and the weights."""
        at = 4096 + ENTRY * mine
        words[at + max(first, WEIGHT + 8) : at + ENTRY] = noise.randbytes(ENTRY - max(first, WEIGHT + 8))

    def write_all():
        write_noise()
        struct.pack_into("<II", words, weights(words, mine)[1], 100, 100)
        take_turn(mine)
        use_nothing()
        be_busy()

    for lie in (
        use_nothing,
        lambda: take_turn(mine),
        lambda: take_turn(mine, 39 * 10**6),
        lambda: take_turn(noise.randrange(64, 127)),
        be_busy,
        hide_other,
        take_seats,
        write_noise,
    ):
        until_goes_on(seen, lie)
    end = time.monotonic() + 60
    while ask(path, uuid, region)[0] != REFUSED:
        assert time.monotonic() < end, "it is never refused"
        until_goes_on(seen, write_all)


def slot_noise(path, region, uuid, pid, seen):
    """The slice's region says that its process is the one of that pid, and then has noise in its slot."""
    with open(region, "r+b") as file:
        words = mmap.mmap(file.fileno(), 0)
    noise = random.Random(2)
    slot, own_slot = 1856, 2011136 + 4096

    def write_pid():
        struct.pack_into("<ii", words, slot, int(pid), int(pid))

    def write_noise():
        words[slot : slot + 1960] = noise.randbytes(1960)
        words[own_slot : own_slot + 64] = noise.randbytes(64)

    until_goes_on(seen, write_pid)
    for _ in range(3):
        until_goes_on(seen, write_noise)


def lock(fd, command, byte):
    """Whether the byte is this open file's now, or no other's."""
    query = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, SIZE + byte, 1, 0)
    try:
        return struct.unpack("hhqqi4x", fcntl.fcntl(fd, command, query))[0] == fcntl.F_UNLCK or command == F_OFD_SETLK
    except BlockingIOError:
        return False


def fails(error, call, *arguments):
    try:
        call(*arguments)
    except OSError as e:
        assert e.errno == error, e
    else:
        raise AssertionError("it did not fail")


def sealed(path, region, uuid):
    """Nobody can change the file's size, and each open file has locks of its own."""
    fd = given(path, region, uuid)
    assert fcntl.fcntl(fd, F_GET_SEALS) & 7 == 7 and os.fstat(fd).st_size == SIZE
    fails(errno.EPERM, os.ftruncate, fd, 0)
    fails(errno.EPERM, os.ftruncate, fd, SIZE + 4096)
    fails(errno.EPERM, os.posix_fallocate, fd, SIZE, 4096)
    fails(errno.EPERM, fcntl.fcntl, fd, 1033, 8)
    other = given(path, region, uuid)
    assert lock(fd, F_OFD_SETLK, 7) and not lock(other, F_OFD_GETLK, 7) and not lock(other, F_OFD_SETLK, 7)
    os.close(fd)
    assert lock(other, F_OFD_SETLK, 7)
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        fd = given(path, region, uuid)
        memory = mmap.mmap(fd, SIZE)
        memory[4000] = 17
        assert not lock(fd, F_OFD_SETLK, 7)
        fails(errno.EPERM, os.ftruncate, fd, 0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 or os.getuid() != 0
    assert os.getuid() != 0 or mmap.mmap(other, SIZE)[4000] == 17
    st = os.fstat(other)
    assert ask(path, uuid, region, have=(st.st_dev, st.st_ino))[0] == SAME
    assert ask(path, uuid, region, have=(st.st_dev, st.st_ino + 1))[0] == FILE


def identity(path, region, uuid):
    """The device and inode of the file."""
    st = os.fstat(given(path, region, uuid))
    print(st.st_dev, st.st_ino)


def strangers(path, region, uuid):
    """Who is of no slice, or asks for no GPU, is given nothing."""
    other = region + ".copy"
    with open(region, "rb") as source, open(other, "wb") as copy:
        copy.write(source.read())
    assert ask(path, uuid, other)[0] == REFUSED
    assert ask(path, uuid, region, flags=os.O_RDONLY)[0] == REFUSED
    assert ask(path, uuid, region, flags=os.O_PATH)[0] == REFUSED
    assert ask(path, uuid, "/dev/null")[0] == REFUSED
    assert ask(path, "GPU-none", region)[0] == REFUSED
    os.unlink(other)


def many(path, region, uuid, count):
    """A slice asks again and again."""
    until_known(path, region, uuid)
    for _ in range(int(count)):
        os.close(given(path, region, uuid))


def odd_uuids(path, region, uuid):
    """A slice writes GPUs into its region that NVML does not know. The name of one that is no UUID is not
    used, because systemd would keep its file by another name, or instead of the socket."""
    odd = ["MIG-of-one-2", "socket", "GPU-a:b"]
    with open(region, "r+b") as file:
        for i, name in enumerate(odd):
            os.pwrite(file.fileno(), name.encode().ljust(96, b"\0"), 64 + 96 * (i + 1))
        os.pwrite(file.fileno(), struct.pack("<Q", 1 + len(odd)), 56)
        until_known(path, region, odd[0])
        for name in odd[1:]:
            assert ask(path, name, region)[0] == REFUSED, name
        os.pwrite(file.fileno(), struct.pack("<Q", 1), 56)


def garbage(path, region, uuid):
    """What is no request ends its connection."""
    fd = os.open(region, os.O_RDWR)
    good = request(uuid)
    for message, fds in (
        (good, []),
        (good, [fd, fd]),
        (good, [fd, fd, fd, fd]),
        (good[:-1], [fd]),
        (good + b"x", [fd]),
        (b"x", [fd]),
        (request(uuid, version=2), [fd]),
        (request(uuid, magic=1), [fd]),
        (request("../x"), [fd]),
        (request(""), [fd]),
        (request("x" * 96), [fd]),
        (os.urandom(128), []),
        (os.urandom(60000), [fd]),
    ):
        with send(path, message, fds) as s:
            assert hear(s) == (None, None), message
    for seed in range(300):
        noise = random.Random(seed)
        message = bytearray(good)
        message[noise.randrange(len(good))] = noise.randrange(256)
        with send(path, bytes(message), [fd]) as s:
            hear(s)
    os.close(fd)
    os.close(given(path, region, uuid))


def hold(path, region, uuid, other):
    """REGION's slice is hostile, and OTHER's is another user's: connections that say nothing, and
    clients that never read."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    held = []
    for _ in range(1500):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.setblocking(False)
        try:
            s.connect(path)
        except BlockingIOError:
            time.sleep(0.01)
        held.append(s)
    os.close(given(path, other, uuid))
    fd = os.open(region, os.O_RDWR)
    for _ in range(500):
        held.append(send(path, request(uuid), [fd]))
    time.sleep(2.5)
    for _ in range(20):
        os.close(given(path, other, uuid))
    files = 0
    for s in held[1500:]:
        try:
            files += hear(s)[0] == FILE
        except ConnectionResetError:
            pass
    assert 1 <= files <= 64, files
    os.close(given(path, region, uuid))


def unread(path, region, uuid, other):
    """REGION's container reads no answer, whether or not it sends more. OTHER is another container's."""
    until_known(path, region, uuid)
    until_known(path, other, uuid)
    fd = os.open(region, os.O_RDWR)
    held = [send(path, request(uuid), [fd]) for _ in range(80)]
    time.sleep(0.5)
    for s in held:
        try:
            s.send(b"more")
        except BrokenPipeError:  # it was refused
            pass
    time.sleep(0.5)
    assert ask(path, uuid, region)[0] == REFUSED
    os.close(given(path, other, uuid))
    for s in held:
        s.close()


def lingering():
    """A socket whose close takes ten minutes, and what keeps it from being shorter."""
    server = socket.create_server(("127.0.0.1", 0))
    slow = socket.create_connection(server.getsockname())
    peer = server.accept()[0]
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    slow.setblocking(False)
    try:
        while True:
            slow.send(bytes(65536))
    except BlockingIOError:
        return slow, peer


def slow_close(path, region, uuid, vgpud):
    """Descriptors whose last close, which is vgpud's to do, takes long: in a request, in a message that
    vgpud has no use for, in one after that, and in connections that their program has closed."""
    kept = []
    for message in (request(uuid), b"x") * 2:
        os.kill(int(vgpud), signal.SIGSTOP)
        s = connect(path)
        for part in (message, b"y"):
            slow, peer = lingering()
            s.sendmsg([part], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [slow.fileno()]))])
            slow.close()
            kept.append(peer)
        if len(kept) > 4:
            s.close()
        kept.append(s)
        os.kill(int(vgpud), signal.SIGCONT)
        time.sleep(1.2)  # vgpud ends what stays
    child = os.fork()
    if child == 0:  # as another user: root is refused for a while
        os.setgid(65534)
        os.setuid(65534)
        for _ in range(20):
            os.close(given(path, region, uuid))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def refused(path, region, uuid):
    kind, _ = ask(path, uuid, region)
    assert kind == REFUSED, kind


def taken(path, region, uuid):
    """A client takes the file away from vgpud: the others have another then."""
    fd = given(path, region, uuid)
    os.fchmod(fd, 0)
    assert os.fstat(given(path, region, uuid)).st_ino == os.fstat(fd).st_ino
    os.fchown(fd, 65534, 65534)
    os.fchmod(fd, 0)
    other = given(path, region, uuid)
    assert os.fstat(other).st_ino != os.fstat(fd).st_ino
    assert os.fstat(given(path, region, uuid)).st_ino == os.fstat(other).st_ino


def flood(path, region, uuid, other, seconds):
    """One client asks as fast as it can. Another one has its answers all the same."""
    end = time.monotonic() + float(seconds)
    child = os.fork()
    if child == 0:
        fd = os.open(region, os.O_RDWR)
        while True:
            try:
                with send(path, random.choice([b"x", request(uuid)]), [fd]):
                    pass
            except OSError:
                pass
    count = 0
    while time.monotonic() < end or count <= 10:
        os.close(given(path, other, uuid))
        count += 1
        assert time.monotonic() < end + 60, count
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


globals()[sys.argv[1]](*sys.argv[2:])
