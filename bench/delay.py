"""Hosts that hear each other after a delay, for kernels without netem.

Makes a device in each network namespace and carries packets between them, each as long after
it was sent as the delay says, until it is killed; its devices go with it (Linux, root). Packets
are of up to 65,000 bytes, so that carrying them takes little of the processors. It says "ready".

    sudo python3 bench/delay.py 5 NAMESPACE=10.77.0.1 NAMESPACE=10.77.0.2
"""

import collections
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

MTU = 65_000
LIMIT = 20_000  # packets under way; what goes beyond is dropped
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET, PR_SET_TIMERSLACK = 0x40000000, 29

libc = ctypes.CDLL(None, use_errno=True)


def device(namespace, address):
    """A device in a namespace, where this process is from then on."""
    with open(f"/var/run/netns/{namespace}") as place:
        if libc.setns(place.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"enter the namespace {namespace}")
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN | IFF_NO_PI))
    for command in (f"address add {address}/24 dev eth0", f"link set eth0 mtu {MTU} txqueuelen 1000 up", "link set lo up"):
        subprocess.run(["ip", *command.split()], check=True)
    return fd


def carry(delay_s, to):
    """Carry packets; to has the device of each address."""
    due = collections.deque()  # (when, device, packet), in order since all are delayed alike
    devices = list(to.values())
    while True:
        left = max(0, due[0][0] - time.monotonic()) if due else None
        ready, _, _ = select.select(devices, [], [], left)
        for fd in ready:
            try:
                packet = os.read(fd, MTU + 100)
            except BlockingIOError:
                continue
            other = to.get(packet[16:20])  # where an IPv4 header has the destination
            if packet[0] >> 4 == 4 and other is not None and len(due) < LIMIT:
                due.append((time.monotonic() + delay_s, other, packet))
        while due and due[0][0] <= time.monotonic():
            _, fd, packet = due.popleft()
            try:
                os.write(fd, packet)
            except OSError:
                pass  # as a switch drops what a host cannot take


def main():
    delay_s = float(sys.argv[1]) / 1e3
    to = {}
    for pair in sys.argv[2:]:
        namespace, address = pair.split("=")
        to[bytes(map(int, address.split(".")))] = device(namespace, address)
    libc.prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
    os.nice(-20)  # in time beside programs that compute
    print("ready", flush=True)
    carry(delay_s, to)


main()
