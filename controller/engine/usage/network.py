"""Network counters of a container, from its network namespace."""

from operator import add

from controller.kinds.observed.usage import NetworkUsage


def parse_net_dev(text: str) -> NetworkUsage:
    """Sum the counters of /proc/<pid>/net/dev over all interfaces but lo."""
    sums = [0] * 16
    for line in text.splitlines()[2:]:  # without its heading
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            sums = list(map(add, sums, map(int, counters.split())))
    return NetworkUsage(
        receive_bytes=sums[0],
        receive_packets=sums[1],
        receive_errors=sums[2],
        receive_dropped=sums[3],
        transmit_bytes=sums[8],
        transmit_packets=sums[9],
        transmit_errors=sums[10],
        transmit_dropped=sums[11],
    )
