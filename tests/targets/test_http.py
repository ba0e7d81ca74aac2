"""The HTTP target as a whole: many at once, stopped, closed, and never a second outcome."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import force_setattr

from tests.targets.calls import NOON, Caller, Names, Pending, launch_of
from tests.targets.peers import DATA, PATIENCE, Peer, Talk, answer, silence
from timewright.core.run import Cancelled, Failed, Outcome, Released, Succeeded, TimedOut
from timewright.core.target import Http, Note
from timewright.errors import InvalidInput
from timewright.ports import Target
from timewright.targets.egress import Egress
from timewright.targets.http import HttpTarget
from timewright.targets.loop import LoopThread
from timewright.testing.clock import ManualClock

MANY = 500
SHORTLY = timedelta(seconds=0.2)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer({"/": answer(200, b"ok"), "/silence": silence}) as running:
        yield running


@pytest.fixture
def caller() -> Iterator[Caller]:
    with Caller() as calling:
        yield calling


class Together:
    """Answers nobody before so many have asked, and remembers how many waited at once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting = 0
        self.most = 0
        self._all_here = asyncio.Event()

    async def __call__(self, talk: Talk) -> None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if self.waiting == self.count:
            self._all_here.set()
        await self._all_here.wait()
        await talk.pause(0.05)
        self.waiting -= 1
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_it_is_a_target() -> None:
    target: Target = HttpTarget(LoopThread(), egress=Egress(), clock=ManualClock(NOON))
    target.close(grace=timedelta(0))


def test_five_hundred_requests_are_in_flight_on_one_loop(caller: Caller, peer: Peer) -> None:
    together = Together(MANY)
    peer.scripts["/"] = together
    before = threading.active_count()
    pending = [caller.launch(Http(url=peer.url()), run_id=f"run_{number}") for number in range(MANY)]
    outcomes = [one.outcome() for one in pending]
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
    assert together.most == MANY
    assert len({heard.headers["x-timewright-run"] for heard in peer.heard}) == MANY
    assert threading.active_count() - before <= 1


def test_the_outcome_comes_once_and_from_the_thread_of_the_loop(caller: Caller, peer: Peer) -> None:
    pending = caller.launch(Http(url=peer.url()))
    pending.outcome()
    caller.close()
    assert len(pending.outcomes) == 1
    assert pending.threads == ["caller"]


def test_no_more_are_in_flight_than_the_limit(peer: Peer) -> None:
    together = Together(4)
    peer.scripts["/"] = together
    with Caller(limit=4) as caller:
        pending = [caller.launch(Http(url=peer.url())) for _ in range(12)]
        assert all(isinstance(one.outcome(), Succeeded) for one in pending)
    assert together.most == 4


def test_a_slow_host_does_not_use_up_the_places_of_others(peer: Peer) -> None:
    names = Names({"slow.test": [["127.0.0.1"]], "quick.test": [["127.0.0.1"]]})
    with Caller(limit=10, limit_per_host=2, resolver=names) as caller:
        slow = [caller.launch(Http(url=peer.url("/silence", host="slow.test"))) for _ in range(20)]
        quick = [caller.launch(Http(url=peer.url(host="quick.test"))) for _ in range(20)]
        assert all(isinstance(one.outcome(), Succeeded) for one in quick)
        peer.until(lambda it: it.now_connected == 2)
        assert [heard.path for heard in peer.heard].count("/silence") == 2
        for one in slow:
            one.stop("enough")
        assert [one.outcome() for one in slow] == [Cancelled(reason="enough")] * 20


def test_waiting_for_a_place_counts_against_the_run_and_not_against_the_request(peer: Peer) -> None:
    with Caller(limit=1) as caller:
        first = caller.launch(Http(url=peer.url("/silence")))
        peer.until(lambda it: len(it.heard) == 1)
        second = caller.launch(Http(url=peer.url()), time_limit=SHORTLY)
        assert isinstance(second.outcome(), TimedOut)
        third = caller.launch(Http(url=peer.url(), timeout=timedelta(seconds=30)))
        first.stop("done waiting")
        assert isinstance(third.outcome(), Succeeded)


def test_the_timeout_of_the_request_ends_it_before_the_time_limit_of_the_run(
    caller: Caller, peer: Peer
) -> None:
    target = Http(url=peer.url("/silence"))
    force_setattr(target, "timeout", SHORTLY)
    outcome = caller.call(target)
    assert outcome == TimedOut(error=f"127.0.0.1:{peer.port} gave no complete answer within 0.2s")


def test_without_a_thread_to_run_on_a_launch_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Caller() as caller:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            assert isinstance(caller.call(Http(url="http://127.0.0.1/")), Released)
        assert isinstance(caller.call(Note(text="x")), Failed)


# Stopping.


def test_stopping_ends_the_request_with_its_reason(caller: Caller, peer: Peer) -> None:
    pending = caller.launch(Http(url=peer.url("/silence")))
    peer.until(lambda it: it.now_connected == 1)
    pending.stop("replaced")
    assert pending.outcome() == Cancelled(reason="replaced")
    peer.until(lambda it: it.now_connected == 0)


def test_stopping_at_once_stops_too(caller: Caller, peer: Peer) -> None:
    stopped: list[Pending] = []
    for _ in range(50):
        pending = caller.launch(Http(url=peer.url("/silence")))
        pending.stop("changed my mind")
        stopped.append(pending)
    assert [one.outcome() for one in stopped] == [Cancelled(reason="changed my mind")] * 50


def test_stopping_what_has_ended_changes_nothing(caller: Caller, peer: Peer) -> None:
    pending = caller.launch(Http(url=peer.url()))
    assert isinstance(pending.outcome(), Succeeded)
    pending.stop("too late")
    pending.stop("again")
    caller.close()
    pending.stop("after the end")
    assert len(pending.outcomes) == 1


def test_the_first_reason_to_stop_counts(caller: Caller, peer: Peer) -> None:
    pending = caller.launch(Http(url=peer.url("/silence")))
    pending.stop("first")
    pending.stop("second")
    assert pending.outcome() == Cancelled(reason="first")


# Closing.


def test_closing_gives_back_what_is_left_and_frees_everything(peer: Peer) -> None:
    caller = Caller()
    pending = [caller.launch(Http(url=peer.url("/silence"))) for _ in range(20)]
    peer.until(lambda it: it.now_connected == 20)
    caller.close()
    assert all(isinstance(one.outcomes[0], Released) for one in pending)
    assert [len(one.outcomes) for one in pending] == [1] * 20
    peer.until(lambda it: it.now_connected == 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("caller")]


def test_closing_waits_for_what_ends_in_its_grace(peer: Peer) -> None:
    closing = threading.Event()

    async def when_closing(talk: Talk) -> None:
        await asyncio.to_thread(closing.wait, 60)
        await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    peer.scripts["/"] = when_closing
    caller = Caller()
    pending = caller.launch(Http(url=peer.url()))
    peer.until(lambda it: len(it.heard) == 1)
    closer = threading.Thread(target=caller.close, kwargs={"grace": timedelta(seconds=60)})
    closer.start()
    closing.set()
    closer.join(60)
    assert isinstance(pending.outcome(), Succeeded)


def test_after_closing_a_launch_is_given_back(peer: Peer) -> None:
    caller = Caller()
    caller.close()
    outcome = caller.call(Http(url=peer.url()))
    assert isinstance(outcome, Released)
    assert peer.connections == 0


def test_a_loop_that_ended_first_gives_runs_back_too(peer: Peer) -> None:
    loop = LoopThread("gone")
    loop.close(grace=timedelta(0))
    target = HttpTarget(loop, egress=Egress.local(), clock=ManualClock(NOON))
    outcomes: list[Outcome] = []
    target.launch(launch_of(Http(url=peer.url())), outcomes.append)
    target.close(grace=timedelta(0))
    assert [type(one) for one in outcomes] == [Released]


def test_a_loop_that_ends_under_way_gives_runs_back_too(peer: Peer) -> None:
    caller = Caller()
    pending = caller.launch(Http(url=peer.url("/silence")))
    peer.until(lambda it: it.now_connected == 1)
    caller.loop.close(grace=timedelta(0))
    assert isinstance(pending.outcome(), Released)
    caller.target.close(grace=timedelta(0))
    peer.until(lambda it: it.now_connected == 0)


def test_closing_twice_or_unused_does_nothing() -> None:
    caller = Caller()
    caller.close()
    caller.close()


# Not getting through.


def test_nobody_at_home_is_a_failure(caller: Caller) -> None:
    with Peer() as gone:
        url = gone.url()
        place = f"127.0.0.1:{gone.port}"
    outcome = caller.call(Http(url=url))
    assert outcome == Failed(error=f"cannot connect to {place}: Connection refused")


def test_a_name_that_is_not_found_is_a_failure() -> None:
    with Caller(resolver=Names({})) as caller:
        outcome = caller.call(Http(url="http://nowhere.test/"))
    assert outcome == Failed(error="nowhere.test was not found: Name or service not known")


def test_a_connection_that_never_comes_is_a_time_out() -> None:
    names = Names({}, wait=asyncio.Event().wait)
    with Caller(resolver=names, connect=SHORTLY) as caller:
        outcome = caller.call(Http(url="http://slow.test/"))
    assert outcome == TimedOut(error="slow.test was not looked up in time; is its name server slow?")
    with Peer(deaf=True) as peer, Caller(connect=SHORTLY) as caller:
        outcome = caller.call(Http(url=peer.url(scheme="https")))
    assert outcome == TimedOut(error=f"no connection to 127.0.0.1:{peer.port} in time")


def test_another_kind_of_target_is_refused_and_does_not_raise(caller: Caller) -> None:
    outcome = caller.call(Note(text="remember"))
    assert isinstance(outcome, Failed)
    assert outcome.final


def test_a_resolver_that_breaks_is_a_failure_that_tells_only_its_kind() -> None:
    async def break_down() -> None:
        raise ArithmeticError("canary")

    with Caller(resolver=Names({}, wait=break_down)) as caller:
        outcome = caller.call(Http(url="http://any.test/"))
    assert outcome == Failed(error="the request could not be made: ArithmeticError")


def test_a_callback_that_breaks_hurts_nobody_else(caller: Caller, peer: Peer) -> None:
    def refuse(outcome: Outcome) -> None:
        told.append(outcome)
        raise LookupError("not now")

    told: list[Outcome] = []
    caller.target.launch(launch_of(Http(url=peer.url())), refuse)
    assert isinstance(caller.call(Http(url=peer.url())), Succeeded)
    caller.close()
    assert len(told) == 1


# TLS.


def tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=DATA / "tls" / "ca.pem")


GOOD = {"good.test": [["127.0.0.1"]]}


@pytest.mark.parametrize("host", ["good.test", "127.0.0.1"])
def test_a_certificate_of_a_known_authority_is_accepted(host: str) -> None:
    script = {"/": answer(200, b"ok")}
    with Peer(script, certificate="good") as peer, Caller(tls=tls(), resolver=Names(GOOD)) as caller:
        outcome = caller.call(Http(url=peer.url(host=host)))
    assert isinstance(outcome, Succeeded)


@pytest.mark.parametrize(
    ("certificate", "context", "why"),
    [
        ("self", tls(), "self-signed"),
        ("expired", tls(), "expired"),
        ("other", tls(), "mismatch"),
        ("good", None, "unable to get local issuer"),
    ],
)
def test_a_certificate_that_does_not_prove_the_name_is_refused(
    certificate: str, context: ssl.SSLContext | None, why: str
) -> None:
    with Peer(certificate=certificate) as peer, Caller(tls=context, resolver=Names(GOOD)) as caller:
        outcome = caller.call(Http(url=peer.url(host="good.test")))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"the certificate of good.test:{peer.port} was refused: ")
    assert why in outcome.error.lower()
    assert peer.heard == []


def test_a_server_that_takes_no_leave_over_tls_holds_no_connection() -> None:
    """The farewell is left unread: only the end of the connection itself counts."""
    answered = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as aside:

        def serve() -> None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(DATA / "tls" / "good.pem")
            with context.wrap_socket(listening.accept()[0], server_side=True) as secured:
                secured.recv(65536)
                secured.sendall(answered)
                with socket.socket(fileno=secured.detach()) as bare:
                    bare.settimeout(PATIENCE)
                    with suppress(ConnectionResetError):
                        while bare.recv(65536):
                            continue

        served = aside.submit(serve)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/"
        with Caller(tls=tls()) as caller:
            assert isinstance(caller.call(Http(url=url)), Succeeded)
            served.result(2 * PATIENCE)


def test_a_server_without_tls_is_not_spoken_to_in_the_clear(caller: Caller) -> None:
    with Peer(greeting=b"220 mail.example ESMTP\r\n") as peer:
        outcome = caller.call(Http(url=peer.url(scheme="https")))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"TLS with 127.0.0.1:{peer.port} failed")
    assert peer.heard == []


def test_there_is_no_way_to_stop_verifying() -> None:
    blind: Any = ssl.create_default_context()
    blind.check_hostname = False
    with pytest.raises(InvalidInput) as caught:
        Caller(tls=blind)
    assert caught.value.field == "tls"
