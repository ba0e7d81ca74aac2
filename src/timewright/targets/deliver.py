"""The deliver target: sends one message through the other targets, by mail or with Apprise."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from email.header import Header
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial
from html import escape
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec.structs import replace

from timewright.core.alerts.channels import (
    AnySender,
    Apprise,
    Command,
    Email,
    Message,
    Ntfy,
    Ping,
    Poll,
    Slack,
    Webhook,
)
from timewright.core.moments import SECOND, to_micros
from timewright.core.run.run import Failed, Outcome, Released, Succeeded
from timewright.core.target import Deliver, Http, SecretDestination, Shell
from timewright.errors import NotAllowed, TimewrightError
from timewright.ports import Clock, Launch, RunHandle, Target
from timewright.targets.http.egress import EgressPolicy, Url
from timewright.targets.outcomes import FINISHED_WORK, FirstResult
from timewright.targets.secret_references import (
    RevealedSecrets,
    SecretLookup,
    find_references,
    parse_reference,
    reveal_secrets,
)

TIMEOUT = 15 * SECOND
MAX_THREADS = 4
# The starts of runs that are remembered after they were sent, so that their ends need not look for them.
MAX_STARTS = 1000
SECRET_MARK = "whsec_"  # noqa: S105 - the prefix of Standard Webhooks secrets, not a secret
_PRIORITY = {"fail": "high", "warn": "default", "ok": "low"}
_HEALTHCHECKS = {"in_progress": "/start", "ok": "", "failed": "/fail"}
_CRONITOR = {"in_progress": "run", "ok": "complete", "failed": "fail"}
_SENTRY = {"in_progress": "in_progress", "ok": "ok", "failed": "error"}

TIMEOUT_S = 15.0


class DeliverTarget:
    """Sends messages. HTTP and commands go through their targets, with the same rules and limits."""

    def __init__(
        self,
        others: Callable[[str], Target],
        *,
        clock: Clock,
        egress: EgressPolicy,
        secrets: SecretLookup | None = None,
        answer_slug: Callable[[str], str] | None = None,
        check_in_turn: Callable[[Launch], Literal["now", "later", "never"]] | None = None,
    ) -> None:
        self._others = others
        self._check_in_turn = check_in_turn
        self._answer_slug = answer_slug
        self._clock = clock
        self._egress = egress
        self._secrets = secrets
        self._threads: ThreadPoolExecutor | None = None
        self._starts = _Starts()

    def launch(self, launch: Launch, done: Callable[[Outcome], None]) -> RunHandle:
        """Start to send; the outcome says whether the receiver took it."""
        result = FirstResult(done)
        target = launch.target
        if not isinstance(target, Deliver):
            result(Failed(error=f"a {type(target).__name__} is not a delivery", final=True))
            return FINISHED_WORK
        try:
            if isinstance(target.to, Ping) and target.message.run:
                if not self._is_next(target.to, launch, done, result):
                    return FINISHED_WORK
                if target.to.status == "in_progress":
                    done = self._starts.track(target.message.run, done)
                    result = FirstResult(done)
            secrets = self._reveal(target.to, launch.namespace)
            message = self._with_answer_link(target.message)
            if isinstance(target.to, Email | Apprise):
                return self._in_thread(target.to, message, launch.run_id, secrets, result)
            kind, request = self._request(target.to, message, launch, secrets)
            return self._others(kind).launch(replace(launch, target=request, payload=None), done)
        except TimewrightError as error:
            result(Failed(error=error.message))
        except Exception as error:  # noqa: BLE001 - a target never raises
            result(Failed(error=f"the message could not be sent: {type(error).__name__}"))
        return FINISHED_WORK

    def close(self, *, grace: timedelta) -> None:
        """Wait for mails that are being sent; requests belong to the other targets."""
        if self._threads is not None:
            self._threads.shutdown(wait=grace > timedelta(0), cancel_futures=True)

    def _reveal(self, sender: AnySender | Ping, namespace: str) -> RevealedSecrets:
        """The secrets of a sender. One that is the address itself leads to no host that could be checked."""
        names = find_references(msgspec.to_builtins(sender))
        address = sender.check_in.url if isinstance(sender, Ping) else getattr(sender, "url", "")
        host = getattr(sender, "host", "") or urlsplit(address).hostname or ""
        destination = SecretDestination("host", "" if parse_reference(address) is not None else host)
        if not names:
            return RevealedSecrets()
        return reveal_secrets(
            names, namespace=namespace, lookup=self._secrets, destination=destination, multiline=True
        )

    def _is_next(
        self, check_in: Ping, launch: Launch, done: Callable[[Outcome], None], result: FirstResult
    ) -> bool:
        """Whether a check-in is sent now; otherwise its outcome is known, or follows that of the start."""
        assert isinstance(launch.target, Deliver)
        run_id, is_start = launch.target.message.run, check_in.status == "in_progress"
        if not is_start and self._starts.was_tracked(run_id):
            again = partial(self._submit, partial(self.launch, launch, done), result)
            if self._starts.wait(run_id, again):
                return False
            if launch.attempt == 1:
                return True
        turn = self._check_in_turn(launch) if self._check_in_turn is not None else "now"
        if turn == "never":
            why = "the run has ended" if is_start else "the end of a later run was sent"
            result(Succeeded(outcome_label="skipped", result=f"not sent: {why}"))
        elif turn == "later":
            result(Failed(error="the start of the run is being sent", not_before=self._clock.now()))
        return turn == "now"

    def _with_answer_link(self, message: Message) -> Message:
        """A question with the link that takes its answer, instead of the link to its run."""
        if self._answer_slug is None or message.type != "answer-wanted" or not (message.run and message.link):
            return message
        server = message.link.partition("/#/")[0]
        return replace(message, link=f"{server}/in/{self._answer_slug(message.run)}")

    def _request(
        self, sender: AnySender | Ping, message: Message, launch: Launch, secrets: RevealedSecrets
    ) -> tuple[str, Http | Shell]:
        """The target that sends the message, and its kind."""
        body = {**message.to_json(), "id": launch.run_id}
        match sender:
            case Webhook():
                return "http", self._webhook(sender, body, launch, secrets)
            case Slack():
                return "http", _post(secrets.fill(sender.url), {"text": slack_text(message)})
            case Ntfy():
                return "http", _ntfy(sender, message, secrets)
            case Ping():
                return "http", _ping(sender, body, launch, secrets)
            case Command():
                texts = {"TITLE": message.title(), "TEXT": message.text(), "MESSAGE": _json(body)}
                env = {f"ALERT_{name}": text for name, text in texts.items()}
                return "shell", Shell(command=sender.command, env=env)
            case Poll() | Email() | Apprise():
                raise TimewrightError("a message of this channel is not sent by a request")

    def _webhook(
        self, sender: Webhook, body: dict[str, Any], launch: Launch, secrets: RevealedSecrets
    ) -> Http:
        """A POST with the headers of Standard Webhooks; the id is the same for all attempts."""
        text, second = _json(body), str(to_micros(self._clock.now()) // 1_000_000)
        headers = {**sender.headers, "webhook-id": launch.run_id, "webhook-timestamp": second}
        if sender.secret is not None:
            signed = f"{launch.run_id}.{second}.{text}".encode()
            digest = hmac.new(signing_key(secrets.fill(sender.secret)), signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        return _post(secrets.fill(sender.url), text, headers)

    def _in_thread(
        self,
        sender: Email | Apprise,
        message: Message,
        run_id: str,
        secrets: RevealedSecrets,
        result: FirstResult,
    ) -> RunHandle:
        def work() -> None:
            try:
                if isinstance(sender, Email):
                    password = secrets.fill(sender.password) if sender.password is not None else ""
                    send_mail(sender, message, run_id=run_id, password=password, egress=self._egress)
                else:
                    _apprise(secrets.fill(sender.url), message)
                result(Succeeded())
            except TimewrightError as error:
                result(Failed(error=error.message, final=isinstance(sender, Apprise)))
            except Exception as error:  # noqa: BLE001 - a target never raises
                result(Failed(error=secrets.redact_text(f"{type(error).__name__}: {error}"[:500])))

        self._submit(work, result)
        return FINISHED_WORK

    def _submit(self, work: Callable[[], object], result: FirstResult) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="timewright-deliver")
        try:
            self._threads.submit(work)
        except RuntimeError:
            result(Released(reason="the instance stops"))


class _Starts:
    """The starts of runs that this process sends to monitors, and the ends that wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], None]] | None] = {}

    def track(self, run_id: str, done: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """Note that a start is being sent, until the function that is returned gets its outcome."""
        with self._lock:
            self._waiting[run_id] = []
            if len(self._waiting) > MAX_STARTS:
                sent = [one for one, waiting in self._waiting.items() if waiting is None]
                for one in sent[: MAX_STARTS // 2]:
                    del self._waiting[one]

        def sent_or_failed(outcome: Outcome) -> None:
            done(outcome)
            with self._lock:
                waiting = self._waiting.get(run_id) or []
                self._waiting[run_id] = None
            for send in waiting:
                send()

        return sent_or_failed

    def was_tracked(self, run_id: str) -> bool:
        """Whether this process sends the start of a run, or sent it recently."""
        return run_id in self._waiting

    def wait(self, run_id: str, send: Callable[[], None]) -> bool:
        """Call a function when the start was sent; false if it was already."""
        with self._lock:
            waiting = self._waiting.get(run_id)
            if waiting is not None:
                waiting.append(send)
            return waiting is not None


def signing_key(secret: str) -> bytes:
    """The key of a webhook secret: base64 after `whsec_`, else the text itself."""
    if secret.startswith(SECRET_MARK):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_MARK), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def slack_text(message: Message) -> str:
    """The message in the markup of Slack, where a text such as `<!channel>` would call everybody."""
    return escape(f"*{message.title()}*\n{message.text()}", quote=False)


def _ntfy(sender: Ntfy, message: Message, secrets: RevealedSecrets) -> Http:
    headers = {"Title": header_text(message.title()), "Priority": _PRIORITY[message.severity]}
    if message.link:
        headers["Click"] = message.link
    if sender.token is not None:
        headers["Authorization"] = f"Bearer {secrets.fill(sender.token)}"
    return _post(secrets.fill(sender.url), message.text(), headers, content_type="text/plain; charset=utf-8")


def _ping(sender: Ping, body: dict[str, Any], launch: Launch, secrets: RevealedSecrets) -> Http:
    """The check-in as its service wants it. The id is that of the run, as a UUID where one is needed."""
    url, status = secrets.fill(sender.check_in.url), sender.status
    run = str(body.get("run") or launch.run_id)
    run_uuid = str(uuid5(NAMESPACE_URL, run))
    match sender.check_in.service(url):
        case "healthchecks":
            parts = urlsplit(url)
            path = parts.path.rstrip("/") + _HEALTHCHECKS[status]
            url = _with_query(parts._replace(path=path).geturl(), {"rid": run_uuid})
            return Http(url=url, method="POST", body=str(body.get("error", "")) or None, timeout=TIMEOUT)
        case "cronitor":
            query = {"state": _CRONITOR[status], "series": run, "message": str(body.get("error", ""))[:1000]}
            return Http(url=_with_query(url, query), timeout=TIMEOUT)
        case "sentry":
            query = {"check_in_id": run_uuid, "status": _SENTRY[status]}
            return Http(url=_with_query(url, query), timeout=TIMEOUT)
        case _:
            return _post(url, {**body, "status": status})


def _with_query(url: str, query: dict[str, str]) -> str:
    given = {name: value for name, value in query.items() if value}
    return f"{url}{'&' if '?' in url else '?'}{urlencode(given)}"


def _post(url: str, body: Any, headers: dict[str, str] | None = None, *, content_type: str = "") -> Http:
    text = body if isinstance(body, str) else _json(body)
    kind = {"Content-Type": content_type or "application/json"}
    return Http(url=url, method="POST", headers={**kind, **(headers or {})}, body=text, timeout=TIMEOUT)


def _apprise(url: str, message: Message) -> None:
    try:
        import apprise
    except ImportError:
        raise TimewrightError('apprise is not installed: pip install "timewright[apprise]"') from None
    sender = apprise.Apprise()
    if not sender.add(url):
        raise TimewrightError("Apprise does not know this URL")
    if not sender.notify(title=message.title(), body=message.text()):
        raise OSError("Apprise could not deliver the message")


def _json(body: Any) -> str:
    return msgspec.json.encode(body).decode()


def header_text(text: str) -> str:
    """A text for an HTTP header, which is ASCII: other characters as RFC 2047 describes it."""
    return text if text.isascii() else Header(text, "utf-8").encode(maxlinelen=0)


def send_mail(sender: Email, message: Message, *, run_id: str, password: str, egress: EgressPolicy) -> None:
    """Send one mail to all receivers, over TLS unless it is off. Raises on every error."""
    mail = build_mail(sender, message, run_id=run_id)
    context = ssl.create_default_context()
    address = _allowed_address(sender, egress)
    with _GuardedSmtp(sender, address, tls=context if sender.tls == "tls" else None) as client:
        if sender.tls == "starttls":
            client.starttls(context=context)
        if sender.user:
            client.login(sender.user, password)
        client.send_message(mail, from_addr=sender.sender, to_addrs=list(sender.to))


def build_mail(sender: Email, message: Message, *, run_id: str) -> EmailMessage:
    """The mail of a message: with the same id at every attempt, and in one thread for one incident."""
    mail = EmailMessage()
    mail["From"], mail["To"] = sender.sender, ", ".join(sender.to)
    mail["Subject"] = message.title()
    mail["Date"] = format_datetime(message.at)
    domain = sender.sender.partition("@")[2]
    mail["Message-ID"] = f"<{run_id}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    if message.incident:
        mail["References"] = f"<{message.incident}@{domain}>"
    mail.set_content(message.text())
    return mail


def _allowed_address(sender: Email, egress: EgressPolicy) -> str:
    """The first address of the host that may be connected to."""
    found = socket.getaddrinfo(sender.host, sender.port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]) for one in found]
    to = Url(scheme="smtp", host=sender.host, port=sender.port, path="")
    allowed = [one for one in addresses if egress.allows(one, to=to)]
    if not allowed:
        raise NotAllowed(egress.refusal_message(addresses, to=to), field="host", value=sender.host)
    return allowed[0]


class _GuardedSmtp(smtplib.SMTP):
    """Connects to an address that was checked, so that a second lookup cannot lead elsewhere."""

    def __init__(self, sender: Email, address: str, *, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._tls = tls
        super().__init__(sender.host, sender.port, timeout=TIMEOUT_S)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected = socket.create_connection((self._address, port), timeout)
        return self._tls.wrap_socket(connected, server_hostname=host) if self._tls is not None else connected
