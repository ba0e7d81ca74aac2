"""The address guard: which addresses are connected to, whatever they are called."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.targets.calls import Caller, Names
from tests.targets.peers import Peer, answer, moved
from timewright.core.run import Failed, Succeeded
from timewright.core.target import Http
from timewright.errors import InvalidInput
from timewright.targets.egress import DENIED, Allow, Egress, is_denied
from timewright.targets.http_request import check_http
from timewright.targets.urls import Url, parse_url

CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "urls.json").read_text("utf-8"))
AT_RUN = [case for case in CORPUS if case["class"] == "reject-at-run"]
SITE = parse_url("https://example.com/")
PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1"]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer({"/": answer(200, b"here"), "/healthz": answer(200, b"well")}) as running:
        yield running


def test_both_ends_of_every_denied_network_are_denied_and_their_neighbours_are_not_all() -> None:
    for text in DENIED:
        network = ipaddress.ip_network(text)
        assert is_denied(network[0])
        assert is_denied(network[-1])
    assert not any(is_denied(ipaddress.ip_address(one)) for one in PUBLIC)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_open(address: str) -> None:
    assert Egress().allows(address, to=SITE)


@given(st.ip_addresses(v=4))
def test_no_way_to_carry_an_old_address_in_a_new_one_is_open(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    carried = [
        number,
        0xFFFF << 32 | number,
        0xFFFF << 48 | number,
        0x64FF9B << 96 | number,
        0x64FF9B0001 << 80 | number,
        0x2002 << 112 | number << 80,
        0x20010000 << 96 | number,
    ]
    assert all(is_denied(ipaddress.IPv6Address(one)) for one in carried)


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f000001", "1.2.3.4/32", "not an address"])
def test_what_is_not_an_address_is_never_open(text: str) -> None:
    everything = Egress(allow=(Allow(cidr="0.0.0.0/0"), Allow(cidr="::/0")))
    assert not everything.allows(text, to=SITE)


def test_an_exception_counts_for_its_host_port_and_network_together() -> None:
    policy = Egress(allow=(Allow(host="CRM.internal.", port=8443, cidr="10.20.0.0/16"),))
    crm = parse_url("https://crm.internal:8443/")
    assert policy.allows("10.20.3.4", to=crm)
    assert not policy.allows("10.21.0.1", to=crm)
    assert not policy.allows("10.20.3.4", to=parse_url("https://crm.internal/"))
    assert not policy.allows("10.20.3.4", to=parse_url("https://other.internal:8443/"))


def test_an_exception_without_host_and_port_counts_for_all() -> None:
    policy = Egress(allow=(Allow(cidr="10.20.0.0/16"),))
    assert policy.allows("10.20.0.1", to=SITE)
    assert not policy.allows("::ffff:10.20.0.1", to=SITE)


@pytest.mark.parametrize("cidr", ["", "10.0.0.1/8", "10.0.0.0/33", "example.com", "10.0.0.0/8/8"])
def test_an_exception_names_a_real_network(cidr: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Allow(cidr=cidr)
    assert caught.value.field == "egress.allow.cidr"
    assert caught.value.fix


def test_ports_can_be_narrowed_and_an_exception_still_names_its_own() -> None:
    policy = Egress(ports=frozenset({80, 443}), allow=(Allow(cidr="10.0.0.0/8", port=9000),))
    ssh = parse_url("http://example.com:22/")
    assert policy.allows("8.8.8.8", to=SITE)
    assert not policy.allows("8.8.8.8", to=ssh)
    assert policy.allows("10.0.0.1", to=parse_url("http://example.com:9000/"))
    said = policy.refusal(["8.8.8.8"], to=ssh)
    assert said == "blocked by egress policy: example.com → 8.8.8.8, port 22; allow it with egress.ports"


def test_local_opens_two_addresses_and_not_a_third() -> None:
    policy = Egress.local()
    assert policy.allows("127.0.0.1", to=SITE)
    assert policy.allows("::1", to=SITE)
    for address in ("127.0.0.2", "::ffff:127.0.0.1", "::", "0.0.0.0", "10.0.0.1", "169.254.169.254"):
        assert not policy.allows(address, to=SITE)


@pytest.mark.parametrize(
    ("path", "is_open"),
    [
        ("/healthz", True),
        ("/", False),
        ("/api/v1/schedules", False),
        ("/healthz/", False),
        ("/healthz?x", False),
        ("/healthz/../api", False),
        ("/%68ealthz", False),
    ],
)
def test_our_own_port_is_open_at_its_health_only(path: str, is_open: bool) -> None:
    policy = Egress.local(own_ports=[7400])
    for host in ("127.0.0.1", "localhost", "[::1]"):
        url = parse_url(f"http://{host}:7400{path}")
        assert policy.allows("127.0.0.1", to=url) is is_open
        assert policy.allows("::1", to=url) is is_open
    assert policy.allows("127.0.0.1", to=parse_url(f"http://localhost:7401{path}"))


def test_our_own_port_stays_closed_on_a_public_address_of_ours_too() -> None:
    policy = Egress(own_ports=frozenset({7400}), own_addresses=frozenset({"8.8.4.4"}))
    url = parse_url("http://us.example:7400/api")
    assert not policy.allows("8.8.4.4", to=url)
    assert policy.allows("8.8.8.8", to=url)
    assert "own port" in policy.refusal(["8.8.4.4"], to=url)


def test_the_refusal_names_host_address_and_remedy() -> None:
    url = parse_url("http://metadata.internal/")
    assert Egress().refusal(["169.254.169.254"], to=url) == (
        "blocked by egress policy: metadata.internal → 169.254.169.254; allow it with egress.allow"
    )
    literal = parse_url("http://10.0.0.1/")
    assert Egress().refusal(["10.0.0.1"], to=literal) == (
        "blocked by egress policy: 10.0.0.1; allow it with egress.allow"
    )
    many = Egress().refusal([f"10.0.0.{number}" for number in range(9)], to=url)
    assert "10.0.0.3 and more;" in many


@pytest.mark.parametrize("case", AT_RUN, ids=lambda case: case["url"])
def test_an_inner_address_is_blocked_when_it_is_about_to_be_connected(case: dict[str, Any]) -> None:
    host = parse_url(case["url"]).host
    names = Names({host: [case["answers"]]} if "answers" in case else {})
    with Caller(egress=Egress(), resolver=names) as caller:
        outcome = caller.call(Http(url=case["url"]))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"blocked by egress policy: {host}")
    assert outcome.error.endswith("allow it with egress.allow")


@pytest.mark.parametrize(
    "case", [case for case in AT_RUN if "answers" not in case], ids=lambda case: case["url"]
)
def test_a_written_address_that_is_closed_is_refused_at_creation_if_the_policy_is_known(
    case: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=case["url"]), egress=Egress())
    assert "blocked by egress policy" in str(caught.value.rule)
    check_http(Http(url=case["url"]))


def test_a_name_whose_answer_changes_between_calls_is_asked_about_each_connection(peer: Peer) -> None:
    names = Names({"flip.test": [["127.0.0.1"], ["169.254.169.254"]]})
    target = Http(url=peer.url(host="flip.test"))
    with Caller(resolver=names) as caller:
        assert isinstance(caller.call(target), Succeeded)
    with Caller(resolver=names) as caller:
        outcome = caller.call(target)
    assert isinstance(outcome, Failed)
    assert "flip.test → 169.254.169.254" in outcome.error
    assert len(peer.heard) == 1


def test_an_attempt_asks_the_resolver_once_and_connects_to_that_answer(peer: Peer) -> None:
    names = Names({"flip.test": [["127.0.0.1"], ["10.0.0.1"]]})
    with Caller(resolver=names) as caller:
        assert isinstance(caller.call(Http(url=peer.url(host="flip.test"))), Succeeded)
    assert names.asked == ["flip.test"]


def test_a_mixed_answer_loses_its_inner_addresses(peer: Peer) -> None:
    names = Names({"mixed.test": [["10.0.0.1", "fd00::1", "127.0.0.1", "169.254.169.254"]]})
    with Caller(resolver=names) as caller:
        outcome = caller.call(Http(url=peer.url(host="mixed.test")))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == "here"


def test_a_mixed_answer_whose_open_address_is_silent_says_that_nobody_was_there() -> None:
    with Peer() as gone:
        url = gone.url(host="mixed.test")
    with Caller(resolver=Names({"mixed.test": [["10.0.0.1", "127.0.0.1"]]})) as caller:
        outcome = caller.call(Http(url=url))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"cannot connect to mixed.test:{gone.port}")


def test_the_name_stays_in_the_request_when_the_address_is_connected(peer: Peer) -> None:
    with Caller(resolver=Names({"named.test": [["127.0.0.1"]]})) as caller:
        caller.call(Http(url=peer.url(host="named.test")))
    assert peer.heard[0].headers["host"] == f"named.test:{peer.port}"


def test_the_connected_peer_is_looked_at_before_a_byte_is_sent(peer: Peer) -> None:
    seen: list[str] = []

    class Fickle(Egress, frozen=True, kw_only=True):
        """Lets an address pass when it is opened, and not when it is connected."""

        def allows(self, address: str, *, to: Url) -> bool:
            seen.append(address)
            return len(seen) == 1

    with Caller(egress=Fickle()) as caller:
        outcome = caller.call(Http(url=peer.url()))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("blocked by egress policy")
    assert seen == ["127.0.0.1", "127.0.0.1"]
    assert peer.heard == []


def test_our_own_port_answers_a_target_at_its_health_only(peer: Peer) -> None:
    policy = Egress.local(own_ports=[peer.port])
    with Caller(egress=policy) as caller:
        well = caller.call(Http(url=peer.url("/healthz")))
        other = caller.call(Http(url=peer.url("/")))
    assert isinstance(well, Succeeded)
    assert isinstance(other, Failed)
    assert other.error == (
        f"blocked by egress policy: 127.0.0.1:{peer.port} is Timewright's own port, open at /healthz only"
    )
    assert [heard.path for heard in peer.heard] == ["/healthz"]


def test_a_redirect_from_our_health_to_our_api_is_blocked(peer: Peer) -> None:
    peer.scripts["/healthz"] = moved(307, "/api")
    with Caller(egress=Egress.local(own_ports=[peer.port])) as caller:
        outcome = caller.call(Http(url=peer.url("/healthz"), redirects=3))
    assert isinstance(outcome, Failed)
    assert "own port" in outcome.error
    assert len(peer.heard) == 1


def test_proxies_named_in_the_environment_are_not_used(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        with Caller() as caller:
            assert isinstance(caller.call(Http(url=peer.url())), Succeeded)
        assert proxy.connections == 0


@pytest.mark.parametrize(
    "case", [case for case in CORPUS if case["class"] != "accept"], ids=lambda case: ascii(case["url"])[:60]
)
def test_no_redirect_leads_where_a_target_could_not_go(peer: Peer, case: dict[str, Any]) -> None:
    location = (case["url"] + "a" * case.get("pad", 0)).encode()
    peer.scripts = {"/away": _wire_redirect(location)}
    names = Names({parse_url(case["url"]).host: [case["answers"]]} if "answers" in case else {})
    target = Http(url=peer.url("/away"), headers={"X-Key": "secret://key"}, redirects=1)
    policy = Egress(allow=(Allow(cidr="127.0.0.1/32", port=peer.port),))
    with Caller(egress=policy, resolver=names, secrets=lambda namespace, name: "canary") as caller:
        outcome = caller.call(target)
    assert isinstance(outcome, Failed)
    assert "NetworkRefused" not in outcome.error
    assert "canary" not in str(outcome)


def _wire_redirect(location: bytes) -> Any:
    async def script(talk: Any) -> None:
        await talk.say(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n")

    return script
