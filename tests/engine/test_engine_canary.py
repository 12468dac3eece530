"""Parts of the canary that need no engine."""

from ipaddress import IPv4Network

from controller.engine.observe.canary import _addresses, _last_subnets, _private_hosts

FIB_TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.213.0.0/22 2 0 2
        |-- 10.213.0.0
           /22 link UNICAST
        |-- 10.213.0.1
           /32 host LOCAL
        |-- 10.213.3.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
Local:
        |-- 10.213.0.1
           /32 host LOCAL
        |-- 203.0.113.2
           /32 host LOCAL
"""


def test_host_addresses_list_sandbox_bridges_last() -> None:
    assert _addresses(FIB_TRIE, "10.213.0.0/16") == ["203.0.113.2", "10.213.0.1"]
    assert _addresses(FIB_TRIE, "10.99.0.0/16") == ["10.213.0.1", "203.0.113.2"]


def test_its_subnets_are_the_last_of_the_range() -> None:
    subnets = list(_last_subnets("10.213.0.0/21"))
    assert subnets[:2] == ["10.213.7.240/28", "10.213.7.224/28"]
    assert all(IPv4Network(subnet).subnet_of(IPv4Network("10.213.0.0/21")) for subnet in subnets)


ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0101A8C0	0003	0	0	0	00000000	0	0	0
eth0	0001A8C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
eth1	000010AC	017100CB	0003	0	0	0	0000FFFF	0	0	0
"""
RESOLVERS = "search example\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver 10.0.0.7\n"


def test_it_tries_known_private_hosts() -> None:
    assert _private_hosts(ROUTES, RESOLVERS, ["10.0.0.7"], "10.213.0.0/16") == ["192.168.1.1", "10.0.0.2"]
    assert _private_hosts(ROUTES, RESOLVERS, [], "10.0.0.0/16") == ["192.168.1.1"]
    assert _private_hosts("Iface", "", [], "10.213.0.0/16") == []
