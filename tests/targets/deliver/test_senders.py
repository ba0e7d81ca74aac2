"""Each sender against a real receiver: signatures, mails, failures, time-outs and redirects."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from email.header import decode_header, make_header
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller

from tests.faults.tools.worker_fleet import wait_until
from tests.targets.deliver.receivers import Receiver
from timewright import Scheduler
from timewright.core.alerts.channels import Message
from timewright.core.moments import SECOND
from timewright.core.policies.backoff import Ladder
from timewright.core.policies.policies import Exhausted, Retry
from timewright.errors import NotAllowed
from timewright.ledger.alerts import deliveries
from timewright.settings import Settings
from timewright.targets import deliver as target
from timewright.targets.deliver import header_text, signing_key, slack_text
from timewright.wiring import Watch

SECRET = "whsec_" + base64.b64encode(b"a key of some length here").decode()


class Mailbox:
    """Keeps the mails that an SMTP server gets."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - its name there
        self.mails.append(envelope)
        return "250 OK"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Scheduler]:
    scheduler = Scheduler(str(tmp_path / "store.db"), settings=Settings(shell=True))
    yield scheduler
    scheduler.instance.free()
    scheduler.stop()


def send(app: Scheduler, to: Any, **fields: Any) -> Any:
    """Create a channel, send a test message with a watch and without an engine, and return its run."""
    app.call("channel create", channel="ops", to=to, **fields)
    run = app.call("channel test", channel="ops").run
    Watch(app.instance).step()
    return app.call("run get", run=run)


def test_a_webhook_is_signed_as_standard_webhooks_describes(app: Scheduler, receiver: Receiver) -> None:
    app.call("secret set", secret="hook", value=SECRET)
    detail = send(app, f"{receiver.url}/hook", sign_with="secret://hook")
    assert detail.run.state.value == "succeeded"
    (request,) = receiver.requests
    headers = {name.lower(): value for name, value in request["headers"].items()}
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{request['body']}".encode()
    digest = hmac.new(signing_key(SECRET), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert (headers["webhook-id"], json.loads(request["body"])["id"]) == (detail.run.id, detail.run.id)
    assert SECRET not in json.dumps(request)


def test_a_receiver_that_fails_gets_the_message_again_with_the_same_id(
    app: Scheduler, receiver: Receiver
) -> None:
    receiver.statuses = [503]
    detail = send(app, f"{receiver.url}/hook")
    assert (detail.run.state.value, detail.run.attempts) == ("ready", 1)
    for _ in range(100):
        if Watch(app.instance).step():
            break
        threading.Event().wait(0.1)
    ids = [json.loads(request["body"])["id"] for request in receiver.requests]
    assert ids == [detail.run.id, detail.run.id]
    assert app.call("run get", run=detail.run.id).run.state.value == "succeeded"


def test_a_message_that_was_committed_before_a_kill_is_sent_after_the_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    path = str(tmp_path / "store.db")
    killed = Scheduler(path)
    killed.call("channel create", channel="ops", to=f"{receiver.url}/hook")
    run = killed.call("channel test", channel="ops").run
    killed.stop()
    restarted = Scheduler(path)
    Watch(restarted.instance).step()
    restarted.instance.free()
    restarted.stop()
    assert [json.loads(request["body"])["id"] for request in receiver.requests] == [run]


def test_a_redirect_is_not_followed(app: Scheduler, receiver: Receiver) -> None:
    receiver.statuses, receiver.location = [302], "http://10.0.0.1/private"
    detail = send(app, f"{receiver.url}/hook")
    assert detail.run.state.value == "ready"
    assert len(receiver.requests) == 1
    assert "302" in detail.run.error


def test_a_private_address_is_not_connected_to(app: Scheduler) -> None:
    detail = send(app, "http://10.255.255.1/hook")
    assert detail.run.state.value == "ready"
    assert "blocked by egress policy" in detail.run.error


def test_slack_gets_a_text(app: Scheduler, receiver: Receiver) -> None:
    app.call("secret set", secret="slack-url", value=f"{receiver.url}/services/T/B/x")
    detail = send(app, "slack:secret://slack-url")
    assert detail.run.state.value == "succeeded"
    (request,) = receiver.requests
    assert request["path"] == "/services/T/B/x"
    assert "this is a test of the channel ops" in json.loads(request["body"])["text"]
    assert receiver.url not in str(app.call("run get", run=detail.run.id))


def test_ntfy_gets_title_priority_and_text(app: Scheduler, receiver: Receiver) -> None:
    app.call("secret set", secret="ntfy", value="tk_1")
    send(app, {"kind": "ntfy", "url": f"{receiver.url}/ops", "token": "secret://ntfy"})
    (request,) = receiver.requests
    assert (request["headers"]["Priority"], request["headers"]["Authorization"]) == ("low", "Bearer tk_1")
    assert request["headers"]["Title"].startswith("[timewright]")
    assert "this is a test" in request["body"]


def test_a_mail_has_subject_receivers_and_text(app: Scheduler) -> None:
    mailbox = Mailbox()
    server = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    server.start()
    try:
        port = server.port
        to = f"mailto:ops@example.com,dev@example.com?host=127.0.0.1:{port}&tls=off&from=tw@example.com"
        detail = send(app, to)
    finally:
        server.stop()
    assert detail.run.state.value == "succeeded", detail.run.error
    (mail,) = mailbox.mails
    assert (mail.mail_from, mail.rcpt_tos) == ("tw@example.com", ["ops@example.com", "dev@example.com"])
    text = mail.content.decode()
    assert "Subject: [timewright] test: this is a test" in text
    assert "Auto-Submitted: auto-generated" in text


def test_a_mail_server_on_a_private_address_is_not_connected_to(app: Scheduler) -> None:
    detail = send(app, "mailto:ops@example.com?host=10.255.255.1:25&tls=off")
    assert detail.run.state.value == "ready"
    assert "blocked by egress policy" in detail.run.error


def test_a_mail_needs_tls_unless_it_is_off(app: Scheduler) -> None:
    server = Controller(Mailbox(), hostname="127.0.0.1", port=free_port())
    server.start()
    try:
        port = server.port
        detail = send(app, f"mailto:ops@example.com?host=127.0.0.1:{port}")
    finally:
        server.stop()
    assert detail.run.state.value == "ready"
    assert "STARTTLS" in detail.run.error


def tls_server(mailbox: Mailbox, folder: Path, *, implicit: bool) -> tuple[Any, Path]:
    """An SMTP server with a certificate for localhost, and the file of the authority that issued it."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(folder / "authority.pem")
    if implicit:
        server = Controller(mailbox, hostname="127.0.0.1", port=free_port(), ssl_context=context)
    else:
        terms: dict[str, Any] = {"tls_context": context, "require_starttls": True}
        server = Controller(mailbox, hostname="127.0.0.1", port=free_port(), **terms)
    return server, folder / "authority.pem"


@pytest.mark.parametrize("tls", ["tls", "starttls"])
def test_a_mail_goes_over_tls_to_a_server_with_a_trusted_certificate(
    app: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: str
) -> None:
    mailbox = Mailbox()
    server, authority = tls_server(mailbox, tmp_path, implicit=tls == "tls")
    server.start()
    try:
        app.call(
            "channel create",
            channel="ops",
            to=f"mailto:ops@example.com?host=localhost:{server.port}&tls={tls}",
        )
        run = app.call("channel test", channel="ops").run
        Watch(app.instance).step()
        refused = app.call("run get", run=run).run
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        run = app.call("channel test", channel="ops").run
        Watch(app.instance).step()
        sent = app.call("run get", run=run).run
    finally:
        server.stop()
    assert "certificate verify failed" in refused.error.lower()
    assert sent.state.value == "succeeded", sent.error
    (mail,) = mailbox.mails
    assert f"Message-ID: <{sent.id}@" in mail.content.decode()


def test_a_receiver_that_hangs_is_given_up_and_tried_again(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "TIMEOUT", SECOND)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        detail = send(app, f"http://127.0.0.1:{silent.getsockname()[1]}/hook")
    assert (detail.run.state.value, detail.run.attempts) == ("ready", 1)
    assert "sent no complete response within 1s" in detail.run.error


def test_a_watch_sends_to_other_channels_while_one_hangs(app: Scheduler, receiver: Receiver) -> None:
    answer_now = receiver.answer_now = threading.Event()
    for name in ("first", "second"):
        app.call("channel create", channel=name, to=f"{receiver.url}/{name}")
        app.call("channel test", channel=name)
    sending = threading.Thread(target=Watch(app.instance).step)
    sending.start()
    wait_until(lambda: receiver.requests, "the message that does not hang")
    answer_now.set()
    sending.join()
    assert len(receiver.requests) == 2


def test_a_command_gets_the_message_in_its_environment(app: Scheduler, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["sh", "-c", f'printf "%s" "$ALERT_TITLE" > {out}']
    detail = send(app, {"kind": "command", "command": command})
    assert detail.run.state.value == "succeeded", detail.run.error
    assert out.read_text().startswith("[timewright] test: this is a test")


def test_a_command_is_accepted_where_another_instance_allows_it_and_sent_only_there(tmp_path: Path) -> None:
    to = {"kind": "command", "command": ["true"]}
    beside = Scheduler(str(tmp_path / "store.db"))
    with pytest.raises(NotAllowed, match="no running instance may run the command 'true'"):
        beside.call("channel create", channel="ops", to=to)
    with Scheduler(str(tmp_path / "store.db"), settings=Settings(shell=True)):
        wait_until(lambda: beside.call("instance list").instances, "the first heartbeat of the able instance")
        beside.call("channel create", channel="ops", to=to)
    run = beside.call("channel test", channel="ops").run
    assert Watch(beside.instance).step() == 0
    with Scheduler(str(tmp_path / "store.db"), settings=Settings(shell=True)) as able:
        assert able.runs.wait(run, time_limit="20s").run.state.value == "succeeded"
    beside.instance.free()
    beside.stop()


def test_apprise_names_the_extra_when_it_is_missing(app: Scheduler) -> None:
    detail = send(app, "apprise:json://localhost/")
    assert detail.run.state.value in ("parked", "failed")
    assert 'pip install "timewright[apprise]"' in detail.run.error


def test_a_question_is_sent_with_a_link_that_takes_the_answer_and_is_not_stored(
    app: Scheduler, receiver: Receiver
) -> None:
    app.call("channel create", channel="editors", to=f"{receiver.url}/hook", link="https://tw.example.com/")
    app.call(
        "channel create", channel="bus", to="poll", events=["answer.wanted"], link="https://tw.example.com"
    )
    wait = {"name": "check", "wait": {"answer": {"to": "editors"}}, "description": "Publish?"}
    app.workflows.put(name="flow", steps=[{**wait, "input": {"draft": "a text", "size": {"pages": 2}}}])
    with app:
        run = app.workflows.run(workflow="flow").run.id
        for _ in range(300):
            if receiver.requests:
                break
            threading.Event().wait(0.1)
        (request,) = receiver.requests
        message = json.loads(request["body"])
        step = message["run"]
        link = f"https://tw.example.com{app.runs.link(run=step).path}"
        assert (message["sentence"], message["others"], message["link"]) == (
            "Publish?",
            ["draft: a text", 'size: {"pages":2}'],
            link,
        )
        (polled,) = app.call("queue lease", queue="channel.bus").leases
        assert polled.payload["link"] == f"https://tw.example.com/#/runs/{step}"
        assert link not in str(app.call("run get", run=message["id"]))
        app.runs.answer(run=step, answer="yes")
        assert app.result(run, timeout="60s") == {"check": "yes"}


def test_a_polling_client_leases_and_completes_messages(app: Scheduler) -> None:
    app.call("channel create", channel="ops", to="poll")
    app.call("channel test", channel="ops")
    (lease,) = app.call("queue lease", queue="channel.ops").leases
    assert lease.payload["type"] == "test"
    app.call("queue complete", run=lease.run, fence=lease.fence)
    assert app.call("queue lease", queue="channel.ops").leases == ()


@pytest.mark.parametrize(
    ("service", "paths"),
    [
        ("healthchecks", ["/x/start?create=1&rid=", "/x?create=1&rid="]),
        ("cronitor", ["/x?create=1&state=run&series=", "/x?create=1&state=complete&series="]),
        ("sentry", ["/x?create=1&check_in_id=", "/x?create=1&check_in_id="]),
        ("url", ["/x?create=1", "/x?create=1"]),
    ],
)
def test_a_run_checks_in_when_it_starts_and_ends(
    app: Scheduler, receiver: Receiver, service: str, paths: list[str]
) -> None:
    report_slowly(app, receiver, service)
    wait_until(lambda: len(receiver.requests) == 2, "both reports")
    for request, path in zip(receiver.requests, paths, strict=True):
        assert request["path"].startswith(path)


def test_a_start_that_could_not_be_reported_is_not_reported_after_the_end(
    app: Scheduler, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = Retry(max_attempts=4, backoff=Ladder(steps=(SECOND / 1000,)), exhausted=Exhausted.FAIL)
    monkeypatch.setattr(deliveries, "CHECK_IN_RETRY", at_once)
    receiver.statuses = [500]
    report_slowly(app, receiver, "healthchecks")
    wait_until(lambda: [str(one.state) for one in check_ins(app)] == ["succeeded"] * 2, "both reports")
    start, end = receiver.requests
    assert "/start" in start["path"]
    assert "/start" not in end["path"]


def test_an_end_that_could_not_be_reported_is_not_reported_after_the_end_of_a_later_run(
    app: Scheduler, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Retry(max_attempts=4, backoff=Ladder(steps=(SECOND,)), exhausted=Exhausted.FAIL)
    monkeypatch.setattr(deliveries, "CHECK_IN_RETRY", later)
    fails = [True, False]

    @app.schedule("manual", check_in={"url": f"{receiver.url}/x", "to": "healthchecks"})
    def job() -> None:
        if fails.pop(0):
            raise ValueError

    receiver.statuses = [200, 500]
    app.start()
    app.call("schedule run", schedule="job")
    wait_until(lambda: len(receiver.requests) == 2, "the end of the first run")
    app.call("schedule run", schedule="job")
    wait_until(lambda: [str(one.state) for one in check_ins(app)] == ["succeeded"] * 4, "all reports")
    ends = [one["path"].split("?")[0] for one in receiver.requests if "/start" not in one["path"]]
    assert ends == ["/x/fail", "/x"]
    (skipped,) = [one for one in check_ins(app) if one.outcome_label == "skipped"]
    assert (
        app.call("run get", run=skipped.id).attempts[-1].result == "not sent: the end of a later run was sent"
    )


def report_slowly(app: Scheduler, receiver: Receiver, service: Any) -> None:
    """Run a job that ends while its monitor still reads the start; answer that when the end is to be sent."""
    answer_now = receiver.answer_now = threading.Event()

    @app.schedule("manual", check_in={"url": f"{receiver.url}/x?create=1", "to": service})
    def job() -> None:
        wait_until(lambda: receiver.answer_now is None, "the start to arrive")

    app.start()
    app.call("schedule run", schedule="job")
    wait_until(lambda: [one.fence for one in check_ins(app)[:-1]] > [0], "an attempt to report the end")
    answer_now.set()


def check_ins(app: Scheduler) -> list[Any]:
    """The deliveries to outside monitors, newest first."""
    return list(app.call("run list", queue="channel.check-in").runs)


def test_a_message_cannot_use_the_markup_of_slack() -> None:
    message = Message(
        type="run-failed", at=datetime(2026, 3, 10, tzinfo=UTC), namespace="x", sentence="<!all> &"
    )
    assert "&lt;!all&gt; &amp;" in slack_text(message)


def test_a_header_has_only_ascii_and_keeps_other_characters() -> None:
    text = header_text("Prüfung " * 30)
    assert text.isascii()
    assert "\n" not in text
    assert str(make_header(decode_header(text))) == "Prüfung " * 30


def test_a_message_is_complete_as_text() -> None:
    message = Message(
        type="incident-opened",
        at=datetime(2026, 3, 10, 12, tzinfo=UTC),
        namespace="default",
        severity="fail",
        sentence="nightly failed 3 times in a row",
        schedule="nightly",
        run="run_1",
        error="boom",
        link="https://tw.example.com/#/runs/run_1",
        remedy="timewright explain nightly",
    )
    text = message.text()
    for part in ("nightly", "run_1", "boom", message.link, message.remedy):
        assert part in text
