"""Sends a message as a mail over SMTP; the egress policy decides about the address that is connected to."""

from __future__ import annotations

import smtplib
import socket
import ssl
from email.message import EmailMessage
from email.utils import format_datetime

from timewright.core.alerts.channels import Email, Message
from timewright.errors import NotAllowed
from timewright.targets.http.egress import EgressPolicy
from timewright.targets.http.urls import Url

TIMEOUT_S = 15.0


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
