"""The egress policy: which addresses are connected to, for any spelling of the host."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.targets.http.kit import FakeResolver, HttpCaller
from tests.targets.http.scripted_server import ScriptedServer, redirect, respond
from timewright.core.run.run import Failed, Succeeded
from timewright.core.target import Http
from timewright.errors import InvalidInput
from timewright.settings import AllowedNetwork
from timewright.targets.http.egress import DENIED_NETWORKS, EgressPolicy, Url, is_denied, parse_url
from timewright.targets.http.request import check_http

CORPUS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "urls.json").read_text("utf-8"))
AT_RUN = [case for case in CORPUS if case["class"] == "reject-at-run"]
SITE = parse_url("https://example.com/")
PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1"]


@pytest.fixture
def peer() -> Iterator[ScriptedServer]:
    with ScriptedServer({"/": respond(200, b"here"), "/healthz": respond(200, b"well")}) as running:
        yield running


def test_first_and_last_address_of_every_denied_network_are_denied() -> None:
    for text in DENIED_NETWORKS:
        network = ipaddress.ip_network(text)
        assert is_denied(network[0])
        assert is_denied(network[-1])
    assert not any(is_denied(ipaddress.ip_address(one)) for one in PUBLIC)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert EgressPolicy().allows(address, to=SITE)


@given(st.ip_addresses(v=4))
def test_every_ipv6_form_of_a_private_ipv4_address_is_denied(address: ipaddress.IPv4Address) -> None:
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
def test_an_invalid_address_is_never_allowed(text: str) -> None:
    everything = EgressPolicy(allow=(AllowedNetwork(cidr="0.0.0.0/0"), AllowedNetwork(cidr="::/0")))
    assert not everything.allows(text, to=SITE)


def test_an_allow_rule_needs_host_port_and_network_to_match() -> None:
    policy = EgressPolicy(allow=(AllowedNetwork(host="CRM.internal.", port=8443, cidr="10.20.0.0/16"),))
    crm = parse_url("https://crm.internal:8443/")
    assert policy.allows("10.20.3.4", to=crm)
    assert not policy.allows("10.21.0.1", to=crm)
    assert not policy.allows("10.20.3.4", to=parse_url("https://crm.internal/"))
    assert not policy.allows("10.20.3.4", to=parse_url("https://other.internal:8443/"))


def test_an_allow_rule_without_host_and_port_matches_all() -> None:
    policy = EgressPolicy(allow=(AllowedNetwork(cidr="10.20.0.0/16"),))
    assert policy.allows("10.20.0.1", to=SITE)
    assert not policy.allows("::ffff:10.20.0.1", to=SITE)


@pytest.mark.parametrize("cidr", ["", "10.0.0.1/8", "10.0.0.0/33", "example.com", "10.0.0.0/8/8"])
def test_an_allow_rule_needs_a_valid_network(cidr: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        AllowedNetwork(cidr=cidr)
    assert caught.value.field == "cidr"
    assert caught.value.fix


def test_ports_can_be_restricted_and_an_allow_rule_adds_its_own() -> None:
    policy = EgressPolicy(ports=frozenset({80, 443}), allow=(AllowedNetwork(cidr="10.0.0.0/8", port=9000),))
    ssh = parse_url("http://example.com:22/")
    assert policy.allows("8.8.8.8", to=SITE)
    assert not policy.allows("8.8.8.8", to=ssh)
    assert policy.allows("10.0.0.1", to=parse_url("http://example.com:9000/"))
    headers = policy.refusal_message(["8.8.8.8"], to=ssh)
    assert headers == "blocked by egress policy: example.com → 8.8.8.8, port 22; allow it with egress.ports"


def test_the_local_policy_allows_loopback_only() -> None:
    policy = EgressPolicy.local()
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
def test_the_policy_allows_our_own_port_for_the_health_path_only(path: str, is_open: bool) -> None:
    policy = EgressPolicy.local(own_ports=[7400])
    for host in ("127.0.0.1", "localhost", "[::1]"):
        url = parse_url(f"http://{host}:7400{path}")
        assert policy.allows("127.0.0.1", to=url) is is_open
        assert policy.allows("::1", to=url) is is_open
    assert policy.allows("127.0.0.1", to=parse_url(f"http://localhost:7401{path}"))


def test_our_own_port_is_denied_on_our_public_address_too() -> None:
    policy = EgressPolicy(own_ports=frozenset({7400}), own_addresses=frozenset({"8.8.4.4"}))
    url = parse_url("http://us.example:7400/api")
    assert not policy.allows("8.8.4.4", to=url)
    assert policy.allows("8.8.8.8", to=url)
    assert "own port" in policy.refusal_message(["8.8.4.4"], to=url)


def test_the_refusal_message_has_host_address_and_fix() -> None:
    url = parse_url("http://metadata.internal/")
    assert EgressPolicy().refusal_message(["169.254.169.254"], to=url) == (
        "blocked by egress policy: metadata.internal → 169.254.169.254; allow it with egress.allow"
    )
    literal = parse_url("http://10.0.0.1/")
    assert EgressPolicy().refusal_message(["10.0.0.1"], to=literal) == (
        "blocked by egress policy: 10.0.0.1; allow it with egress.allow"
    )
    many = EgressPolicy().refusal_message([f"10.0.0.{number}" for number in range(9)], to=url)
    assert "10.0.0.3 and more;" in many


@pytest.mark.parametrize("case", AT_RUN, ids=lambda case: case["url"])
def test_a_private_address_is_blocked_at_connect(case: dict[str, Any]) -> None:
    host = parse_url(case["url"]).host
    names = FakeResolver({host: [case["answers"]]} if "answers" in case else {})
    with HttpCaller(egress=EgressPolicy(), resolver=names) as caller:
        outcome = caller.call(Http(url=case["url"]))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"blocked by egress policy: {host}")
    assert outcome.error.endswith("allow it with egress.allow")


@pytest.mark.parametrize(
    "case", [case for case in AT_RUN if "answers" not in case], ids=lambda case: case["url"]
)
def test_a_denied_literal_address_is_refused_at_creation_with_a_known_policy(
    case: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_http(Http(url=case["url"]), egress=EgressPolicy())
    assert "blocked by egress policy" in str(caught.value.rule)
    check_http(Http(url=case["url"]))


def test_every_connection_is_checked_when_a_dns_answer_changes(
    peer: ScriptedServer,
) -> None:
    names = FakeResolver({"flip.test": [["127.0.0.1"], ["169.254.169.254"]]})
    target = Http(url=peer.url(host="flip.test"))
    with HttpCaller(resolver=names) as caller:
        assert isinstance(caller.call(target), Succeeded)
    with HttpCaller(resolver=names) as caller:
        outcome = caller.call(target)
    assert isinstance(outcome, Failed)
    assert "flip.test → 169.254.169.254" in outcome.error
    assert len(peer.requests) == 1


def test_an_attempt_resolves_once_and_connects_to_that_address(peer: ScriptedServer) -> None:
    names = FakeResolver({"flip.test": [["127.0.0.1"], ["10.0.0.1"]]})
    with HttpCaller(resolver=names) as caller:
        assert isinstance(caller.call(Http(url=peer.url(host="flip.test"))), Succeeded)
    assert names.queries == ["flip.test"]


def test_private_addresses_in_a_mixed_dns_answer_are_skipped(peer: ScriptedServer) -> None:
    names = FakeResolver({"mixed.test": [["10.0.0.1", "fd00::1", "127.0.0.1", "169.254.169.254"]]})
    with HttpCaller(resolver=names) as caller:
        outcome = caller.call(Http(url=peer.url(host="mixed.test")))
    assert isinstance(outcome, Succeeded)
    assert outcome.result["body"] == "here"


def test_a_mixed_dns_answer_with_a_dead_public_address_is_a_connection_failure() -> None:
    with ScriptedServer() as gone:
        url = gone.url(host="mixed.test")
    with HttpCaller(resolver=FakeResolver({"mixed.test": [["10.0.0.1", "127.0.0.1"]]})) as caller:
        outcome = caller.call(Http(url=url))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"cannot connect to mixed.test:{gone.port}")


def test_the_host_header_is_the_name_and_not_the_address(peer: ScriptedServer) -> None:
    with HttpCaller(resolver=FakeResolver({"named.test": [["127.0.0.1"]]})) as caller:
        caller.call(Http(url=peer.url(host="named.test")))
    assert peer.requests[0].headers["host"] == f"named.test:{peer.port}"


def test_the_address_of_the_peer_is_checked_before_anything_is_sent(peer: ScriptedServer) -> None:
    seen: list[str] = []

    class Fickle(EgressPolicy, frozen=True, kw_only=True):
        """Allows an address when the socket is opened, but not after it is connected."""

        def allows(self, address: str, *, to: Url) -> bool:
            seen.append(address)
            return len(seen) == 1

    with HttpCaller(egress=Fickle()) as caller:
        outcome = caller.call(Http(url=peer.url()))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("blocked by egress policy")
    assert seen == ["127.0.0.1", "127.0.0.1"]
    assert peer.requests == []


def test_our_own_port_may_be_called_at_its_health_path_only(peer: ScriptedServer) -> None:
    policy = EgressPolicy.local(own_ports=[peer.port])
    with HttpCaller(egress=policy) as caller:
        well = caller.call(Http(url=peer.url("/healthz")))
        other = caller.call(Http(url=peer.url("/")))
    assert isinstance(well, Succeeded)
    assert isinstance(other, Failed)
    assert other.error == (
        f"blocked by egress policy: 127.0.0.1:{peer.port} is our own port, allowed for /healthz only"
    )
    assert [request.path for request in peer.requests] == ["/healthz"]


def test_a_redirect_from_our_health_to_our_api_is_blocked(peer: ScriptedServer) -> None:
    peer.scripts["/healthz"] = redirect(307, "/api")
    with HttpCaller(egress=EgressPolicy.local(own_ports=[peer.port])) as caller:
        outcome = caller.call(Http(url=peer.url("/healthz"), redirects=3))
    assert isinstance(outcome, Failed)
    assert "own port" in outcome.error
    assert len(peer.requests) == 1


def test_proxies_named_in_the_environment_are_not_used(
    peer: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        with HttpCaller() as caller:
            assert isinstance(caller.call(Http(url=peer.url())), Succeeded)
        assert proxy.connections == 0


@pytest.mark.parametrize(
    "case", [case for case in CORPUS if case["class"] != "accept"], ids=lambda case: ascii(case["url"])[:60]
)
def test_a_redirect_to_a_denied_address_is_blocked(peer: ScriptedServer, case: dict[str, Any]) -> None:
    location = (case["url"] + "a" * case.get("pad", 0)).encode()
    peer.scripts = {"/away": _wire_redirect(location)}
    names = FakeResolver({parse_url(case["url"]).host: [case["answers"]]} if "answers" in case else {})
    target = Http(url=peer.url("/away"), headers={"X-Key": "secret://key"}, redirects=1)
    policy = EgressPolicy(allow=(AllowedNetwork(cidr="127.0.0.1/32", port=peer.port),))
    with HttpCaller(egress=policy, resolver=names, secrets=lambda *_: "canary") as caller:
        outcome = caller.call(target)
    assert isinstance(outcome, Failed)
    assert "NetworkRefused" not in outcome.error
    assert "canary" not in str(outcome)


def _wire_redirect(location: bytes) -> Any:
    async def script(talk: Any) -> None:
        await talk.say(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n")

    return script
