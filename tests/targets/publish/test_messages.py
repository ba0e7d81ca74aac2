"""The messages passed to the libraries of brokers that these tests do not start."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.targets.kit import launch_of
from timewright import Publish
from timewright.targets.publish import celery, kubernetes_temporal, messaging, redis
from timewright.targets.publish.broker_types import prepare_publish
from timewright.targets.publish.protocol import BrokerMessage

KEY = "5f" * 32
URLS = {
    "celery": "redis://localhost:6379/0",
    "rq": "redis://localhost:6379/0",
    "rabbitmq": "amqp://localhost/",
    "temporal": "temporal://localhost:7233",
}


def message(
    to: str, name: str = "Nightly Report", *, key: str = KEY, payload: Any = None, **options: Any
) -> BrokerMessage:
    target = Publish(to=to, name=name, url=URLS.get(to, ""), payload=payload, options=options)
    ready = prepare_publish(target)
    return ready.message(target, launch_of(target, key=key), ready.options)


def test_a_rabbitmq_message_is_persistent_and_has_the_key() -> None:
    made = messaging.amqp_message(message("rabbitmq", "orders", payload={"n": 1}, priority=3, expires=60))
    assert made.body == b'{"n":1}'
    assert made.message_id == KEY
    assert made.delivery_mode == 2
    assert (made.content_type, made.priority, made.expiration) == ("application/json", 3, 60)
    assert made.headers["timewright-key"] == KEY
    assert made.headers["timewright-run"] == "run_1"


def test_a_temporal_workflow_has_the_key_as_its_id() -> None:
    starting = kubernetes_temporal.start_parameters(
        message("temporal", payload={"n": 1}, task_queue="reports")
    )
    assert starting["id"] == KEY
    assert starting["task_queue"] == "reports"
    assert starting["args"] == [{"n": 1}], "a mapping is one argument of a workflow"
    assert starting["memo"]["timewright-run"] == "run_1"
    assert kubernetes_temporal.start_parameters(message("temporal", payload=[1, 2], task_queue="reports"))[
        "args"
    ] == [
        1,
        2,
    ]
    assert kubernetes_temporal.start_parameters(message("temporal", task_queue="reports"))["args"] == []


def test_a_kubernetes_job_has_the_payload_and_the_key() -> None:
    options: dict[str, Any] = {
        "image": "busybox",
        "command": ["echo"],
        "args": ["hi"],
        "env": {"LEVEL": "info"},
    }
    job = kubernetes_temporal.build_job(message("kubernetes", payload={"n": 1}, **options))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {one["name"]: one["value"] for one in container["env"]}
    assert (container["image"], container["command"], container["args"]) == ("busybox", ["echo"], ["hi"])
    assert (env["LEVEL"], env["TIMEWRIGHT_PAYLOAD"], env["TIMEWRIGHT_KEY"]) == ("info", '{"n":1}', KEY)
    assert pod["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] == 0, "the attempts are ours to count"
    assert job["metadata"]["annotations"]["timewright/run"] == "run_1"


def test_a_kubernetes_spec_is_used_unchanged() -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}
    assert kubernetes_temporal.build_job(message("kubernetes", spec=spec))["spec"] == spec


@pytest.mark.parametrize("name", ["report", "Nightly Report!", "x" * 255, "é", "--", "a/b.c:d"])
def test_a_kubernetes_job_name_is_valid_and_derived_from_the_key(name: str) -> None:
    names = [
        kubernetes_temporal.job_name(message("kubernetes", name, key=key, image="b"))
        for key in ("k1", "k1", "k2")
    ]
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", one) for one in names)
    assert names[0] == names[1] != names[2]


def test_an_sqs_message_has_key_and_group_on_a_fifo_queue_only() -> None:
    fifo = messaging.send_parameters(message("sqs", "orders.fifo", payload={"n": 1}))
    assert (fifo["MessageDeduplicationId"], fifo["MessageGroupId"]) == (KEY, "sch_1")
    assert fifo["MessageBody"] == '{"n":1}'
    assert messaging.send_parameters(message("sqs", "orders.fifo", group="a"))["MessageGroupId"] == "a"
    plain = messaging.send_parameters(message("sqs", "orders", delay=5))
    assert "MessageDeduplicationId" not in plain
    assert plain["DelaySeconds"] == 5
    assert plain["MessageAttributes"]["timewright-key"]["StringValue"] == KEY
    assert len(plain["MessageAttributes"]) <= 10


def test_a_payload_becomes_keyword_or_positional_arguments() -> None:
    for payload, args, kwargs in (
        ({"a": 1}, [], {"a": 1}),
        ([1, 2], [1, 2], {}),
        ("one", ["one"], {}),
        (0, [0], {}),
        (None, [], {}),
    ):
        made = celery.send_options(message("celery", payload=payload))
        assert (made["args"], made["kwargs"]) == (args, kwargs)


def test_an_rq_id_has_only_characters_that_rq_accepts() -> None:
    assert redis.job_id(KEY) == KEY
    assert re.fullmatch(r"[A-Za-z0-9_-]+", redis.job_id("test:trial_01K8/é"))


def test_a_step_of_a_workflow_sends_its_own_payload_and_not_what_its_run_carries() -> None:
    target = Publish(to="rabbitmq", name="orders", url=URLS["rabbitmq"], payload={"n": 1})
    ready = prepare_publish(target)
    step = launch_of(target, schedule_id="", payload={"workflow": "orders", "step": "send"})
    assert ready.message(target, step, ready.options).payload == {"n": 1}
