"""Reads Kubernetes CronJobs; each becomes a schedule that creates the same Job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from timewright.core.imports.cron_text import add_cron
from timewright.core.imports.report import (
    Entry,
    Imported,
    ImportOptions,
    clean_name,
    collect,
    duration_text,
    read_documents,
)
from timewright.core.input.input_errors import input_error

_RULE = "CronJob manifests of batch/v1 as YAML or JSON"
_FIX = "kubectl get cronjobs -o yaml"
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_OVERLAPS = {"Allow": "allow", "Forbid": "skip", "Replace": "replace"}
_METADATA_SET_BY_SERVER = (
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "uid",
    "managedFields",
    "selfLink",
)


def import_kubernetes(files: Mapping[str, str], _options: ImportOptions) -> Imported:
    """Import the CronJobs of manifests; other objects are reported."""
    entries = []
    for file, text in files.items():
        for place, document in read_documents(file, text, rule=_RULE):
            entries += [_entry(one, place) for one in _objects(document, place)]
    if not any(one.definition for one in entries):
        found = ", ".join(files) or "no file"
        raise input_error("file", found, "has no CronJob", rule=_RULE, fix=_FIX)
    return collect(entries)


def _objects(document: Any, place: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a document; a List has several."""
    if not isinstance(document, Mapping) or "kind" not in document:
        raise input_error(place, document, "is not a Kubernetes object", rule=_RULE, fix=_FIX)
    if str(document["kind"]).endswith("List"):
        for one in document.get("items") or ():
            yield from _objects(one, place)
    else:
        yield document


def _entry(document: Mapping[str, Any], place: str) -> Entry:
    metadata, spec = _mapping(document, "metadata", place), _mapping(document, "spec", place)
    entry = Entry(clean_name(str(metadata.get("name", "")), fallback="cronjob"), place=place)
    if document["kind"] != "CronJob":
        entry.drop_entry("kind", document["kind"], "only CronJobs are schedules")
        return entry
    if not str(document.get("apiVersion", "batch/v1")).startswith("batch/"):
        entry.drop_entry("apiVersion", document["apiVersion"], "only CronJobs of batch/v1 are known")
        return entry
    if not isinstance(spec.get("schedule"), str) or not isinstance(spec.get("jobTemplate"), Mapping):
        rule = "spec.schedule and spec.jobTemplate"
        raise input_error(f"{place} spec", spec, "is not the spec of a CronJob", rule=rule, fix=_FIX)
    _add_time(entry, spec, place)
    _add_metadata(entry, metadata)
    _add_policies(entry, spec)
    _add_job(entry, metadata, spec["jobTemplate"])
    known = ("schedule", "timeZone", "concurrencyPolicy", "startingDeadlineSeconds", "suspend", "jobTemplate")
    history = ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    entry.report_unknown_fields(spec, (*known, *history), prefix="spec.")
    entry.report_unknown_fields(document, _TOP)
    if document.get("status"):
        entry.report_lost(
            "status", document["status"], "history is not imported; what was due before is not run"
        )
    return entry


def _add_time(entry: Entry, spec: Mapping[str, Any], place: str) -> None:
    text, zone = spec["schedule"].strip(), spec.get("timeZone")
    prefixed = _PREFIX.fullmatch(text)
    if prefixed is not None and zone and zone != prefixed[1]:
        entry.report_lost("spec.schedule", prefixed[1], f"it names another zone than spec.timeZone, {zone}")
    if prefixed is not None:
        zone, text = zone or prefixed[1], prefixed[2]
    if text.startswith("@every"):
        note = "every; Kubernetes counts from the start of its controller, Timewright from creation"
        entry.add_translated(
            "spec.schedule", text, note, trigger={"kind": "every", "interval": text[6:].strip()}
        )
        return
    if problem := add_cron(entry, "spec.schedule", text, zone=zone or "UTC", and_days=False, dst="match"):
        raise input_error(f"{place} spec.schedule", text, problem, rule="a cron expression", fix="0 3 * * *")
    if zone:
        entry.add_kept("spec.timeZone", zone, "a local time that occurs twice runs twice, as in Kubernetes")
    else:
        entry.add_translated(
            "(zone)", "UTC", "the zone of the controller, which is UTC unless it was changed"
        )


def _add_metadata(entry: Entry, metadata: Mapping[str, Any]) -> None:
    entry.add_kept("metadata.name", metadata.get("name", ""))
    if "namespace" in metadata:
        entry.add_kept("metadata.namespace", metadata["namespace"], "the namespace of the Jobs")
    for key in ("labels", "annotations"):
        if metadata.get(key):
            entry.add_kept(
                f"metadata.{key}",
                metadata[key],
                "metadata of the schedule",
                metadata={**entry.definition.get("metadata", {}), key: dict(metadata[key])},
            )
    known = ("name", "namespace", "labels", "annotations", *_METADATA_SET_BY_SERVER)
    entry.report_unknown_fields(metadata, known, prefix="metadata.")


def _add_policies(entry: Entry, spec: Mapping[str, Any]) -> None:
    policy = spec.get("concurrencyPolicy", "Allow")
    if policy not in _OVERLAPS:
        entry.report_lost("spec.concurrencyPolicy", policy, "not a policy that this importer knows")
    elif policy == "Allow":
        entry.add_kept("spec.concurrencyPolicy", policy, "overlap: allow")
    else:
        note = f"overlap: {_OVERLAPS[policy]}; a run lasts as long as its Job, because of wait: true"
        entry.add_kept("spec.concurrencyPolicy", policy, note)
    entry.definition["overlap"] = _OVERLAPS.get(policy, "allow")
    entry.definition |= {"catch_up": "last", "catch_up_window": None}
    _add_deadline(entry, spec.get("startingDeadlineSeconds"))
    if spec.get("suspend"):
        entry.report_pause("spec.suspend", True)
    elif "suspend" in spec:
        entry.add_kept("spec.suspend", False)
    for key in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if key in spec:
            note = "history is kept as long as the setting keep_history says"
            entry.report_lost(f"spec.{key}", spec[key], note)


def _add_deadline(entry: Entry, deadline: Any) -> None:
    field = "spec.startingDeadlineSeconds"
    if deadline is None:
        note = "after downtime Kubernetes starts the last missed Job, however late: catch_up: last"
        entry.add_translated(field, "not set", note)
    elif isinstance(deadline, bool) or not isinstance(deadline, int) or deadline < 0:
        entry.report_lost(field, deadline, "not a number of seconds; catch_up: last, without a window")
    elif deadline == 0:
        entry.add_translated(field, deadline, "catch_up: none", catch_up="none")
    else:
        window = duration_text(deadline)
        entry.add_translated(field, deadline, "catch_up: last within this window", catch_up_window=window)


def _add_job(entry: Entry, metadata: Mapping[str, Any], template: Mapping[str, Any]) -> None:
    job = template.get("spec")
    if not isinstance(job, Mapping):
        entry.drop_entry("spec.jobTemplate.spec", job, "it has no Job")
        return
    options = {"namespace": str(metadata.get("namespace", "default")), "spec": dict(job)}
    target = {
        "kind": "publish",
        "to": "kubernetes",
        "name": str(metadata.get("name", "")),
        "options": options,
        "wait": True,
    }
    entry.definition |= {"target": target, "retry": {"max_attempts": 1}}
    for key in job:
        note = "the retries of the Job itself" if key == "backoffLimit" else "part of the Job, unchanged"
        entry.add_kept(f"spec.jobTemplate.spec.{key}", job[key], note)
    for key in template:
        if key != "spec":
            entry.report_lost(
                f"spec.jobTemplate.{key}", template[key], "Jobs get the labels and annotations of Timewright"
            )


def _mapping(document: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
    found = document.get(key) or {}
    if not isinstance(found, Mapping):
        raise input_error(f"{place} {key}", found, "is not a mapping", rule=_RULE, fix=_FIX)
    return found
