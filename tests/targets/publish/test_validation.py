"""Validation of publish targets, allowed brokers, and secrets that are never shown."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.faults.tools.ports import free_port
from tests.targets.kit import launch_of, outcome_of
from tests.targets.publish.servers import redis_server
from timewright import Publish, Scheduler
from timewright.core.run.run import Failed, Succeeded
from timewright.errors import InvalidInput, MissingExtra, TimewrightError
from timewright.targets.loop_thread import LoopThread
from timewright.targets.publish.broker_types import BROKER_TYPES, check_publish
from timewright.targets.publish.protocol import normalize_endpoint, parse_broker_url
from timewright.targets.publish.target import PublishTarget

REDIS = "redis://localhost:6379/0"
GOOD: dict[str, dict[str, Any]] = {
    "celery": {"url": REDIS},
    "rq": {"url": REDIS},
    "dramatiq": {"url": REDIS},
    "redis": {"url": REDIS},
    "nats": {"url": "nats://localhost:4222"},
    "rabbitmq": {"url": "amqp://localhost/"},
    "sqs": {},
    "temporal": {"url": "temporal://localhost:7233", "options": {"task_queue": "reports"}},
    "kubernetes": {"options": {"image": "busybox"}},
}


def made(to: str = "redis", **fields: Any) -> Publish:
    return Publish(to=to, **{"name": "orders", **GOOD.get(to, {}), **fields})


def refusal(target: Publish) -> TimewrightError:
    with pytest.raises(TimewrightError) as caught:
        check_publish(target)
    return caught.value


def every_package_there(monkeypatch: pytest.MonkeyPatch, *, but: str = "") -> None:
    found = importlib.util.find_spec("json")
    monkeypatch.setattr(
        "timewright.targets.publish.broker_types.find_spec", lambda name: None if name == but else found
    )


def test_every_broker_accepts_a_minimal_target(monkeypatch: pytest.MonkeyPatch) -> None:
    every_package_there(monkeypatch)
    assert set(GOOD) == set(BROKER_TYPES)
    for word in BROKER_TYPES:
        check_publish(made(word))


@pytest.mark.parametrize("word", sorted(BROKER_TYPES))
def test_a_broker_without_its_package_is_refused_with_the_install_command(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_package_there(monkeypatch, but=BROKER_TYPES[word].modules[0])
    error = refusal(made(word))
    assert isinstance(error, MissingExtra)
    assert error.fix == f'pip install "timewright[{BROKER_TYPES[word].extra}]"'
    assert error.field == "target.to"


def test_a_missing_package_is_refused_when_the_schedule_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_package_there(monkeypatch, but="redis")
    with Scheduler(tmp_path / "store.db") as app:
        with pytest.raises(MissingExtra):
            app.schedules.create(
                name="tell", manual=True, target={"publish": {"to": "redis", "name": "orders", "url": REDIS}}
            )
        assert app.schedules.list().schedules == ()


def test_a_removed_package_makes_the_outcome_unresolved(
    target: PublishTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_package_there(monkeypatch, but="redis")
    outcome = outcome_of(target, made())
    assert isinstance(outcome, Failed)
    assert outcome.unresolved
    assert 'pip install "timewright[redis]"' in outcome.error


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"to": "kafka"}, "target.to"),
        ({"url": ""}, "target.url"),
        ({"url": "http://localhost"}, "target.url"),
        ({"url": "redis://"}, "target.url"),
        ({"url": "redis://localhost:port"}, "target.url"),
        ({"url": "redis://localhost:99999"}, "target.url"),
        ({"url": "redis://a,b:6379"}, "target.url"),
        ({"url": "redis://local host"}, "target.url"),
        ({"url": "rediss://localhost?ssl_cert_reqs=none"}, "target.url"),
        ({"url": "redis://:hunter2@localhost"}, "target.url"),
        ({"url": "redis://:secret://pw@localhost"}, "target.url"),
        ({"options": {"password": "hunter2"}}, "target.options.password"),
        ({"options": {"password": "Bearer secret://pw"}}, "target.options.password"),
        ({"options": {"maxlen": -1}}, "target.options.maxlen"),
        ({"options": {"colour": "red"}}, "target.options"),
        ({"wait": True}, "target.wait"),
        ({"payload": {"when": object()}}, "target.payload"),
        ({"payload": "x" * 1_048_577}, "target.payload"),
        ({"to": "sqs", "payload": "x" * 262_144}, "target.payload"),
        ({"to": "celery", "wait": True}, "target.options.result_backend"),
        ({"to": "celery", "options": {"result_backend": "redis://:pw@h"}}, "target.options.result_backend"),
        ({"to": "celery", "options": {"result_backend": "file:///etc"}}, "target.options.result_backend"),
        ({"to": "celery", "options": {"queue": "secret://q"}}, "target.options.queue"),
        ({"to": "kubernetes", "options": {}}, "target.options.image"),
        ({"to": "temporal", "options": {}}, "target.options"),
    ],
)
def test_an_invalid_message_is_refused_with_field_and_fix(
    fields: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every_package_there(monkeypatch)
    error = refusal(made(**fields))
    assert isinstance(error, InvalidInput)
    assert error.field == field
    assert error.rule
    assert error.fix
    assert "hunter2" not in error.explain()
    assert ":pw@" not in error.explain()


def test_a_misspelled_broker_is_refused_with_the_closest_name() -> None:
    assert refusal(made(to="rabbit")).fix == "to: rabbitmq"


def test_an_address_shows_neither_user_nor_password() -> None:
    read = parse_broker_url("amqp://me:p%40ss@[::1]:5672/vhost", schemes=("amqp",), fix="")
    assert (read.user, read.password) == ("me", "p@ss")
    assert read.display == "amqp://[::1]:5672/vhost"
    assert read.url == "amqp://me:p%40ss@[::1]:5672/vhost"
    assert read.with_credentials("you", "a/b").url == "amqp://you:a%2Fb@[::1]:5672/vhost"


@pytest.mark.parametrize(
    ("allowed", "may"),
    [
        ((), False),
        (("celery",), False),
        (("redis://other:6379",), False),
        (("redis",), True),
        (("redis://127.0.0.1:{port}",), True),
        (("redis://127.0.0.1:{port}/3/",), True),
    ],
)
def test_a_broker_that_is_not_allowed_gets_no_message(
    allowed: tuple[str, ...], may: bool, redis: tuple[Any, str]
) -> None:
    port = redis[1].rpartition(":")[2].removesuffix("/0")
    loop = LoopThread("timewright-publish")
    target = PublishTarget(loop, allowed=[one.format(port=port) for one in allowed])
    outcome = outcome_of(target, made(url=redis[1]), key=f"allowed-{allowed}")
    assert isinstance(outcome, Succeeded) is may
    if not may:
        assert outcome.final
        assert f"publish: [redis://127.0.0.1:{port}]" in outcome.error
    target.close(grace=launch_of(made()).grace)
    loop.close(grace=launch_of(made()).grace)


def test_an_unexpected_exception_is_an_outcome(
    target: PublishTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("with a secret in it")

    monkeypatch.setattr("timewright.targets.publish.target.prepare_publish", broken)
    assert outcome_of(target, made()) == Failed(error="the message could not be built: RuntimeError")


def test_an_address_without_a_port_has_the_default_port() -> None:
    assert (
        normalize_endpoint("redis://queue")
        == normalize_endpoint("redis://queue:6379/0")
        == "redis://queue:6379"
    )
    assert parse_broker_url("redis://queue", schemes=("redis",), fix="").endpoint == "redis://queue:6379"
    assert normalize_endpoint("celery") == "celery"
    assert normalize_endpoint("redis://queue:none") == "redis://queue:none"


def test_a_result_backend_must_be_allowed_too(redis: tuple[Any, str]) -> None:
    loop = LoopThread("timewright-publish")
    target = PublishTarget(loop, allowed=[redis[1].removesuffix("/0")])
    outside = {"result_backend": "redis://elsewhere:6379/0"}
    outcome = outcome_of(target, made("celery", url=redis[1], options=outside))
    assert isinstance(outcome, Failed)
    assert "is not allowed" in outcome.error
    target.close(grace=launch_of(made()).grace)
    loop.close(grace=launch_of(made()).grace)


def test_a_password_is_read_from_its_secret_and_shown_nowhere(tmp_path: Path) -> None:
    port = free_port()
    secrets = {"right": "correct-horse", "wrong": "hunter2-hunter2"}
    secrets["whole"] = f"redis://:{secrets['right']}@127.0.0.1:{port}/0"
    loop = LoopThread("timewright-publish")
    target = PublishTarget(loop, allowed=["redis", "rq"], secrets=lambda _, name, _destination: secrets[name])
    url = f"redis://127.0.0.1:{port}/0"
    with redis_server(tmp_path, port, password=secrets["right"]):
        right, wrong, none, unknown = (
            outcome_of(target, made(url=url, options=options), key=str(options))
            for options in (
                {"password": "secret://right"},
                {"password": "secret://wrong"},
                {},
                {"password": "secret://unknown"},
            )
        )
        whole = outcome_of(target, made(to="rq", url="secret://whole", options={}), key="whole")
    target.close(grace=launch_of(made()).grace)
    loop.close(grace=launch_of(made()).grace)
    assert isinstance(right, Succeeded)
    assert isinstance(whole, Succeeded)
    assert all(isinstance(one, Failed) for one in (wrong, none, unknown))
    assert "secret://unknown" in unknown.error
    assert not [
        one for one in (right, wrong, none, unknown, whole) for value in secrets.values() if value in str(one)
    ]


def test_the_payload_of_the_run_takes_precedence(redis: tuple[Any, str], target: PublishTarget) -> None:
    from redis import Redis

    what = made(name="payloads", url=redis[1], payload={"of": "schedule"})
    for key, payload in (("p1", None), ("p2", {"of": "run"})):
        assert isinstance(outcome_of(target, what, key=key, payload=payload), Succeeded)
    client: Any = Redis.from_url(redis[1])
    assert [fields[b"payload"] for _, fields in client.xrange("payloads")] == [
        b'{"of":"schedule"}',
        b'{"of":"run"}',
    ]
    client.close()
