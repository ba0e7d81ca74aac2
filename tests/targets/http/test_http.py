"""The HTTP target as a whole: concurrency, stopping, closing, and exactly one outcome."""

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

from tests.targets.http.kit import NOON, FakeResolver, HttpCaller, PendingLaunch, launch_of
from tests.targets.http.scripted_server import (
    DATA,
    TIMEOUT_S,
    ScriptedServer,
    ServerConnection,
    respond,
    silence,
)
from timewright.core.run.run import Cancelled, Failed, Outcome, Released, Succeeded, TimedOut
from timewright.core.target import Http, Note
from timewright.errors import InvalidInput
from timewright.ports import Target
from timewright.targets.http.egress import EgressPolicy
from timewright.targets.http.target import HttpTarget
from timewright.targets.loop_thread import LoopThread
from timewright.testing.clock import ManualClock

MANY = 500
SHORTLY = timedelta(seconds=0.2)


@pytest.fixture
def peer() -> Iterator[ScriptedServer]:
    with ScriptedServer({"/": respond(200, b"ok"), "/silence": silence}) as running:
        yield running


@pytest.fixture
def caller() -> Iterator[HttpCaller]:
    with HttpCaller() as calling:
        yield calling


class Together:
    """Responds only after a number of requests arrived, and records how many waited concurrently."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting = 0
        self.most = 0
        self._all_here = asyncio.Event()

    async def __call__(self, talk: ServerConnection) -> None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if self.waiting == self.count:
            self._all_here.set()
        await self._all_here.wait()
        await talk.pause(0.05)
        self.waiting -= 1
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def test_the_http_target_implements_the_port() -> None:
    target: Target = HttpTarget(LoopThread(), egress=EgressPolicy(), clock=ManualClock(NOON))
    target.close(grace=timedelta(0))


def test_five_hundred_requests_are_in_flight_on_one_loop(caller: HttpCaller, peer: ScriptedServer) -> None:
    together = Together(MANY)
    peer.scripts["/"] = together
    before = threading.active_count()
    pending = [caller.launch(Http(url=peer.url()), run_id=f"run_{number}") for number in range(MANY)]
    outcomes = [one.outcome() for one in pending]
    assert all(isinstance(outcome, Succeeded) for outcome in outcomes)
    assert together.most == MANY
    assert len({request.headers["x-timewright-run"] for request in peer.requests}) == MANY
    assert threading.active_count() - before <= 1


def test_the_outcome_is_reported_once_on_the_thread_of_the_loop(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    pending = caller.launch(Http(url=peer.url()))
    pending.outcome()
    caller.close()
    assert len(pending.outcomes) == 1
    assert pending.threads == ["caller"]


def test_concurrent_requests_never_exceed_the_limit(peer: ScriptedServer) -> None:
    together = Together(4)
    peer.scripts["/"] = together
    with HttpCaller(limit=4) as caller:
        pending = [caller.launch(Http(url=peer.url())) for _ in range(12)]
        assert all(isinstance(one.outcome(), Succeeded) for one in pending)
    assert together.most == 4


def test_a_slow_host_does_not_use_the_slots_of_others(peer: ScriptedServer) -> None:
    names = FakeResolver({"slow.test": [["127.0.0.1"]], "quick.test": [["127.0.0.1"]]})
    with HttpCaller(limit=10, limit_per_host=2, resolver=names) as caller:
        slow = [caller.launch(Http(url=peer.url("/silence", host="slow.test"))) for _ in range(20)]
        quick = [caller.launch(Http(url=peer.url(host="quick.test"))) for _ in range(20)]
        assert all(isinstance(one.outcome(), Succeeded) for one in quick)
        peer.wait_until(lambda it: it.now_connected == 2)
        assert [request.path for request in peer.requests].count("/silence") == 2
        for one in slow:
            one.stop("enough")
        assert [one.outcome() for one in slow] == [Cancelled(reason="enough")] * 20


def test_waiting_for_a_slot_counts_against_the_time_limit_of_the_run_only(peer: ScriptedServer) -> None:
    with HttpCaller(limit=1) as caller:
        first = caller.launch(Http(url=peer.url("/silence")))
        peer.wait_until(lambda it: len(it.requests) == 1)
        second = caller.launch(Http(url=peer.url()), time_limit=SHORTLY)
        assert isinstance(second.outcome(), TimedOut)
        third = caller.launch(Http(url=peer.url(), timeout=timedelta(seconds=30)))
        first.stop("done waiting")
        assert isinstance(third.outcome(), Succeeded)


def test_the_timeout_of_the_request_ends_it_before_the_time_limit_of_the_run(
    caller: HttpCaller, peer: ScriptedServer
) -> None:
    target = Http(url=peer.url("/silence"))
    force_setattr(target, "timeout", SHORTLY)
    outcome = caller.call(target)
    assert outcome == TimedOut(error=f"127.0.0.1:{peer.port} sent no complete response within 0.2s")


def test_without_a_free_thread_a_launch_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with HttpCaller() as caller:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            assert isinstance(caller.call(Http(url="http://127.0.0.1/")), Released)
        assert isinstance(caller.call(Note(text="x")), Failed)


# Stopping.


def test_stopping_ends_the_request_with_its_reason(caller: HttpCaller, peer: ScriptedServer) -> None:
    pending = caller.launch(Http(url=peer.url("/silence")))
    peer.wait_until(lambda it: it.now_connected == 1)
    pending.stop("replaced")
    assert pending.outcome() == Cancelled(reason="replaced")
    peer.wait_until(lambda it: it.now_connected == 0)


def test_stopping_immediately_after_launch_works(caller: HttpCaller, peer: ScriptedServer) -> None:
    stopped: list[PendingLaunch] = []
    for _ in range(50):
        pending = caller.launch(Http(url=peer.url("/silence")))
        pending.stop("changed my mind")
        stopped.append(pending)
    assert [one.outcome() for one in stopped] == [Cancelled(reason="changed my mind")] * 50


def test_stopping_a_finished_attempt_does_nothing(caller: HttpCaller, peer: ScriptedServer) -> None:
    pending = caller.launch(Http(url=peer.url()))
    assert isinstance(pending.outcome(), Succeeded)
    pending.stop("too late")
    pending.stop("again")
    caller.close()
    pending.stop("after the end")
    assert len(pending.outcomes) == 1


def test_the_first_reason_to_stop_counts(caller: HttpCaller, peer: ScriptedServer) -> None:
    pending = caller.launch(Http(url=peer.url("/silence")))
    pending.stop("first")
    pending.stop("second")
    assert pending.outcome() == Cancelled(reason="first")


# Closing.


def test_closing_releases_running_attempts_and_frees_resources(peer: ScriptedServer) -> None:
    caller = HttpCaller()
    pending = [caller.launch(Http(url=peer.url("/silence"))) for _ in range(20)]
    peer.wait_until(lambda it: it.now_connected == 20)
    caller.close()
    assert all(isinstance(one.outcomes[0], Released) for one in pending)
    assert [len(one.outcomes) for one in pending] == [1] * 20
    peer.wait_until(lambda it: it.now_connected == 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("caller")]


def test_closing_waits_for_requests_within_the_grace(peer: ScriptedServer) -> None:
    closing = threading.Event()

    async def when_closing(talk: ServerConnection) -> None:
        await asyncio.to_thread(closing.wait, 60)
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    peer.scripts["/"] = when_closing
    caller = HttpCaller()
    pending = caller.launch(Http(url=peer.url()))
    peer.wait_until(lambda it: len(it.requests) == 1)
    closer = threading.Thread(target=caller.close, kwargs={"grace": timedelta(seconds=60)})
    closer.start()
    closing.set()
    closer.join(60)
    assert isinstance(pending.outcome(), Succeeded)


def test_a_launch_after_close_is_released(peer: ScriptedServer) -> None:
    caller = HttpCaller()
    caller.close()
    outcome = caller.call(Http(url=peer.url()))
    assert isinstance(outcome, Released)
    assert peer.connections == 0


def test_a_launch_on_a_closed_loop_is_released(peer: ScriptedServer) -> None:
    loop = LoopThread("gone")
    loop.close(grace=timedelta(0))
    target = HttpTarget(loop, egress=EgressPolicy.local(), clock=ManualClock(NOON))
    outcomes: list[Outcome] = []
    target.launch(launch_of(Http(url=peer.url())), outcomes.append)
    target.close(grace=timedelta(0))
    assert [type(one) for one in outcomes] == [Released]


def test_closing_the_loop_releases_running_requests(peer: ScriptedServer) -> None:
    caller = HttpCaller()
    pending = caller.launch(Http(url=peer.url("/silence")))
    peer.wait_until(lambda it: it.now_connected == 1)
    caller.loop.close(grace=timedelta(0))
    assert isinstance(pending.outcome(), Released)
    caller.target.close(grace=timedelta(0))
    peer.wait_until(lambda it: it.now_connected == 0)


def test_closing_twice_or_unused_does_nothing() -> None:
    caller = HttpCaller()
    caller.close()
    caller.close()


# Connection failures.


def test_a_refused_connection_is_a_failure(caller: HttpCaller) -> None:
    with ScriptedServer() as gone:
        url = gone.url()
        place = f"127.0.0.1:{gone.port}"
    outcome = caller.call(Http(url=url))
    assert outcome == Failed(error=f"cannot connect to {place}: Connection refused")


def test_a_name_that_is_not_found_is_a_failure() -> None:
    with HttpCaller(resolver=FakeResolver({})) as caller:
        outcome = caller.call(Http(url="http://nowhere.test/"))
    assert outcome == Failed(error="nowhere.test could not be resolved: Name or service not known")


def test_a_connection_that_is_never_established_times_out() -> None:
    names = FakeResolver({}, wait=asyncio.Event().wait)
    with HttpCaller(resolver=names, connect=SHORTLY) as caller:
        outcome = caller.call(Http(url="http://slow.test/"))
    assert outcome == TimedOut(error="slow.test was not resolved in time; check its name server")
    with ScriptedServer(never_reads=True) as peer, HttpCaller(connect=SHORTLY) as caller:
        outcome = caller.call(Http(url=peer.url(scheme="https")))
    assert outcome == TimedOut(error=f"timed out while connecting to 127.0.0.1:{peer.port}")


def test_another_kind_of_target_is_refused_and_does_not_raise(caller: HttpCaller) -> None:
    outcome = caller.call(Note(text="remember"))
    assert isinstance(outcome, Failed)
    assert outcome.final


def test_a_failing_resolver_shows_only_the_type_of_its_error() -> None:
    async def break_down() -> None:
        raise ArithmeticError("canary")

    with HttpCaller(resolver=FakeResolver({}, wait=break_down)) as caller:
        outcome = caller.call(Http(url="http://any.test/"))
    assert outcome == Failed(error="the request could not be sent: ArithmeticError")


def test_a_failing_callback_does_not_affect_other_runs(caller: HttpCaller, peer: ScriptedServer) -> None:
    def refuse(outcome: Outcome) -> None:
        outcomes.append(outcome)
        raise LookupError("not now")

    outcomes: list[Outcome] = []
    caller.target.launch(launch_of(Http(url=peer.url())), refuse)
    assert isinstance(caller.call(Http(url=peer.url())), Succeeded)
    caller.close()
    assert len(outcomes) == 1


# TLS.


def tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=DATA / "tls" / "ca.pem")


GOOD = {"good.test": [["127.0.0.1"]]}


@pytest.mark.parametrize("host", ["good.test", "127.0.0.1"])
def test_a_certificate_of_a_known_authority_is_accepted(host: str) -> None:
    script = {"/": respond(200, b"ok")}
    with (
        ScriptedServer(script, certificate="good") as peer,
        HttpCaller(tls=tls(), resolver=FakeResolver(GOOD)) as caller,
    ):
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
def test_an_invalid_certificate_is_refused(
    certificate: str, context: ssl.SSLContext | None, why: str
) -> None:
    with (
        ScriptedServer(certificate=certificate) as peer,
        HttpCaller(tls=context, resolver=FakeResolver(GOOD)) as caller,
    ):
        outcome = caller.call(Http(url=peer.url(host="good.test")))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"the certificate of good.test:{peer.port} is invalid: ")
    assert why in outcome.error.lower()
    assert peer.requests == []


def test_a_server_without_tls_shutdown_holds_no_connection() -> None:
    """Does not read the TLS shutdown, so that only the end of the connection counts."""
    answered = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as aside:

        def serve() -> None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(DATA / "tls" / "good.pem")
            with context.wrap_socket(listening.accept()[0], server_side=True) as secured:
                secured.recv(65536)
                secured.sendall(answered)
                with socket.socket(fileno=secured.detach()) as bare:
                    bare.settimeout(TIMEOUT_S)
                    with suppress(ConnectionResetError):
                        while bare.recv(65536):
                            continue

        served = aside.submit(serve)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/"
        with HttpCaller(tls=tls()) as caller:
            assert isinstance(caller.call(Http(url=url)), Succeeded)
            served.result(2 * TIMEOUT_S)


def test_a_server_without_tls_gets_no_plain_text_request(caller: HttpCaller) -> None:
    with ScriptedServer(greeting=b"220 mail.example ESMTP\r\n") as peer:
        outcome = caller.call(Http(url=peer.url(scheme="https")))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith(f"TLS with 127.0.0.1:{peer.port} failed")
    assert peer.requests == []


def test_a_tls_context_without_verification_is_refused() -> None:
    blind: Any = ssl.create_default_context()
    blind.check_hostname = False
    with pytest.raises(InvalidInput) as caught:
        HttpCaller(tls=blind)
    assert caught.value.field == "tls"
