"""A channel that would never send is refused with what to write, or made with a warning."""

from __future__ import annotations

import pytest

from timewright.core.alerts.channels import parse_sender
from timewright.errors import InvalidInput
from timewright.testing.bench import Bench


@pytest.mark.parametrize(
    ("options", "port", "tls"),
    [
        ("", None, None),
        (":465", 465, "tls"),
        ("&tls=tls", 465, "tls"),
        (":25&tls=off", 25, "off"),
        (":465&tls=starttls", 465, "starttls"),
    ],
)
def test_the_port_of_a_mail_server_says_how_tls_begins(
    options: str, port: int | None, tls: str | None
) -> None:
    sender = parse_sender(f"mailto:a+b@example.com?host=mail.example.com{options}")
    assert (sender.get("port"), sender.get("tls"), sender["to"]) == (port, tls, ["a+b@example.com"])


def test_a_plus_sign_in_the_name_of_a_mail_user_stays() -> None:
    assert parse_sender("mailto:a@b.c?host=mail&user=me+tw@b.c")["user"] == "me+tw@b.c"


@pytest.mark.parametrize(
    ("fields", "fix"),
    [
        ({"kinds": ["faild"]}, "failed"),
        ({"severities": ["fial"]}, "fail"),
        ({"to": "mailto:me?host=mail"}, "you@example.com"),
        ({"to": "slack:example.com"}, "https://example.com/hook"),
        ({"sign_with": "hunter2"}, "secret://NAME"),
        ({"to": "mailto:a@b.c?host=mail&password=hunter2"}, "secret://NAME"),
    ],
)
def test_a_channel_that_could_send_nothing_is_refused_without_showing_a_secret(
    fields: dict[str, object], fix: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Bench().call("channel create", **{"channel": "ops", "to": "https://example.com/hook", **fields})
    assert str(caught.value.fix).endswith(fix)
    assert "hunter2" not in f"{caught.value.message} {caught.value.value}"


@pytest.mark.parametrize(
    ("to", "warning"),
    [
        ("https://10.0.0.1/hook", "10.0.0.1 are refused"),
        ("mailto:a@b.c?host=10.0.0.1", "10.0.0.1 are refused"),
        ("slack:secret://nope", "no secret nope"),
    ],
)
def test_a_channel_that_cannot_send_yet_says_so(to: str, warning: str) -> None:
    (found,) = Bench().call("channel create", channel="ops", to=to)["warnings"]
    assert warning in found
