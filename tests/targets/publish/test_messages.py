"""The messages of brokers that these tests do not start, as their libraries are given them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.targets.stage import launch_of
from timewright import Publish
from timewright.targets.publish import celery, kubernetes, rabbitmq, rq, sqs, temporal
from timewright.targets.publish.message import Message
from timewright.targets.publish.rules import prepare

KEY = "5f" * 32
URLS = {
    "celery": "redis://localhost:6379/0",
    "rq": "redis://localhost:6379/0",
    "rabbitmq": "amqp://localhost/",
    "temporal": "temporal://localhost:7233",
}


def message(
    to: str, name: str = "Nightly Report", *, key: str = KEY, payload: Any = None, **options: Any
) -> Message:
    target = Publish(to=to, name=name, url=URLS.get(to, ""), payload=payload, options=options)
    ready = prepare(target)
    return ready.message(target, launch_of(target, key=key), ready.options)


def test_rabbitmq_is_given_a_persistent_message_that_carries_the_key() -> None:
    made = rabbitmq.amqp_message(message("rabbitmq", "orders", payload={"n": 1}, priority=3, expires=60))
    assert made.body == b'{"n":1}'
    assert made.message_id == KEY
    assert made.delivery_mode == 2
    assert (made.content_type, made.priority, made.expiration) == ("application/json", 3, 60)
    assert made.headers["timewright-key"] == KEY
    assert made.headers["timewright-run"] == "run_1"


def test_temporal_is_given_the_key_as_the_id_of_the_workflow() -> None:
    starting = temporal.starting(message("temporal", payload={"n": 1}, task_queue="reports"))
    assert starting["id"] == KEY
    assert starting["task_queue"] == "reports"
    assert starting["args"] == [{"n": 1}], "a mapping is one argument of a workflow"
    assert starting["memo"]["timewright-run"] == "run_1"
    assert temporal.starting(message("temporal", payload=[1, 2], task_queue="reports"))["args"] == [1, 2]
    assert temporal.starting(message("temporal", task_queue="reports"))["args"] == []


def test_kubernetes_is_given_a_job_that_knows_its_payload_and_its_key() -> None:
    options: dict[str, Any] = {
        "image": "busybox",
        "command": ["echo"],
        "args": ["hi"],
        "env": {"LEVEL": "info"},
    }
    job = kubernetes.job_of(message("kubernetes", payload={"n": 1}, **options))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {one["name"]: one["value"] for one in container["env"]}
    assert (container["image"], container["command"], container["args"]) == ("busybox", ["echo"], ["hi"])
    assert (env["LEVEL"], env["TIMEWRIGHT_PAYLOAD"], env["TIMEWRIGHT_KEY"]) == ("info", '{"n":1}', KEY)
    assert pod["restartPolicy"] == "Never"
    assert job["spec"]["backoffLimit"] == 0, "the attempts are ours to count"
    assert job["metadata"]["annotations"]["timewright/run"] == "run_1"


def test_kubernetes_is_given_a_whole_spec_as_it_was_written() -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}
    assert kubernetes.job_of(message("kubernetes", spec=spec))["spec"] == spec


@pytest.mark.parametrize("name", ["report", "Nightly Report!", "x" * 255, "é", "--", "a/b.c:d"])
def test_the_name_of_a_job_is_one_that_kubernetes_takes_and_the_key_decides_it(name: str) -> None:
    names = [
        kubernetes.job_name(message("kubernetes", name, key=key, image="b")) for key in ("k1", "k1", "k2")
    ]
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", one) for one in names)
    assert names[0] == names[1] != names[2]


def test_sqs_is_given_the_key_and_a_group_only_where_the_queue_is_fifo() -> None:
    fifo = sqs.sending(message("sqs", "orders.fifo", payload={"n": 1}))
    assert (fifo["MessageDeduplicationId"], fifo["MessageGroupId"]) == (KEY, "sch_1")
    assert fifo["MessageBody"] == '{"n":1}'
    assert sqs.sending(message("sqs", "orders.fifo", group="a"))["MessageGroupId"] == "a"
    plain = sqs.sending(message("sqs", "orders", delay=5))
    assert "MessageDeduplicationId" not in plain
    assert plain["DelaySeconds"] == 5
    assert plain["MessageAttributes"]["timewright-key"]["StringValue"] == KEY
    assert len(plain["MessageAttributes"]) <= 10


def test_a_mapping_is_named_arguments_a_list_is_positional_and_a_value_stands_alone() -> None:
    for payload, args, kwargs in (
        ({"a": 1}, [], {"a": 1}),
        ([1, 2], [1, 2], {}),
        ("one", ["one"], {}),
        (0, [0], {}),
        (None, [], {}),
    ):
        made = celery.sending(message("celery", payload=payload))
        assert (made["args"], made["kwargs"]) == (args, kwargs)


def test_an_id_of_rq_has_no_letter_that_rq_refuses() -> None:
    assert rq.job_id(KEY) == KEY
    assert re.fullmatch(r"[A-Za-z0-9_-]+", rq.job_id("test:trial_01K8/é"))
