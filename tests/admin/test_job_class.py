"""Which class a job gets, and who may have which."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace

import pytest

from leased.admin import job_class
from leased.base.errors import Refused
from leased.config import config, options
from leased.config.config import ClassesConfig
from leased.config.job_sets import JobSet, Owner
from leased.config.options import Options, Resolved
from tests.support.node_requests import GIB, ROOT_PEER, STEP, UUIDS, Node

SITE = config.parse(
    b"[classes]\n"
    b'online = ["partition:serve", "qos:prod"]\n'
    b'offline = ["partition:batch", "account:students"]\n'
    b'may_online = ["account:ml", "user:1234", "user:root"]\n'
).classes


def resolve(
    text: str, job: Owner, defaults: Options = options.PLAIN, site: ClassesConfig = SITE
) -> Resolved:
    said = options.parse(text)
    return job_class.resolve(Resolved.of(said, defaults), said, job, site)


@pytest.mark.parametrize(
    ("text", "job", "wanted"),
    [
        ("", Owner(1000, "gpu"), "none"),
        ("", Owner(1000, "serve"), "online"),
        ("", Owner(1000, "gpu", "prod"), "online"),
        ("", Owner(1000, "batch"), "offline"),
        ("", Owner(1000, "serve", account="students"), "online"),
        ("class:offline", Owner(1000, "serve"), "offline"),
        ("class:none", Owner(1000, "batch"), "none"),
        ("class:online", Owner(1000, "serve"), "online"),
        ("class:online", Owner(1000, "gpu", account="ml"), "online"),
        ("class:online", Owner(1234, "batch"), "online"),
        ("class:online", Owner(0), "online"),
        ("tq:5", Owner(1000, "gpu", account="ml"), "none"),
    ],
)
def test_a_job_has_the_class_that_it_says_or_that_the_site_gives(
    text: str, job: Owner, wanted: str
) -> None:
    assert resolve(text, job).job_class == wanted


@pytest.mark.parametrize(
    ("text", "job", "sentence"),
    [
        ("class:online", Owner(1000, "gpu"), "class:online is not allowed for this job"),
        ("class:online", Owner(1000, "batch"), "class:online is not allowed for this job"),
        ("request:0.3", Owner(1000, "serve"), "which the site gives to jobs like it, has no share"),
        ("limit:0.3", Owner(1000, "batch"), "which the site gives to jobs like it, has no share"),
        ("lock:off", Owner(1000, "batch"), "heeds the lock where memory does not fit"),
    ],
)
def test_a_job_that_may_not_have_its_class_is_told_what_to_do(
    text: str, job: Owner, sentence: str
) -> None:
    with pytest.raises(Refused, match=sentence) as told:
        resolve(text, job)
    assert told.value.hint


def test_the_refusal_names_where_it_is_allowed() -> None:
    with pytest.raises(Refused) as told:
        resolve("class:online", Owner(1000, "gpu"))
    assert "partition:serve, qos:prod, account:ml" in str(told.value.hint)
    with pytest.raises(Refused) as told:
        resolve("class:online", Owner(0), site=config.Config().classes)
    assert "nowhere yet" in str(told.value.hint)


def test_a_default_of_the_site_is_for_everybody() -> None:
    assert resolve("", Owner(1000), options.parse("class:online")).job_class == "online"


def test_users_are_meant_by_name_and_number_and_nobody_else() -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    named = config.from_dict({"classes": {"may_online": [f"user:{me}"]}}).classes
    assert named.may_online.has(Owner(os.getuid()))
    assert not named.may_online.has(Owner(4_000_000_000))


@pytest.mark.parametrize("word", ["serve", "partition:", "group:x", ":x", ""])
def test_a_word_that_names_no_jobs_is_refused_with_what_may_be_written(word: str) -> None:
    with pytest.raises(Refused, match=r"classes\.online"):
        config.parse(f'[classes]\nonline = ["{word}"]\n'.encode())


def test_a_job_is_registered_with_its_class_and_an_online_one_has_less_memory(node: Node) -> None:
    site = replace(SITE, online_memory="40%", may_online=JobSet(("user:1000",)))
    node.admin.config = replace(node.config, classes=site)
    found = {name: node.register(n, f"class:{name}") for n, name in ((1, "online"), (2, "none"))}
    totals = {name: tenant.totals[UUIDS[0]] for name, tenant in found.items()}
    assert totals["none"] > totals["online"] == int(0.4 * 8 * GIB)
    request = STEP | {"op": "register", "job_id": 3, "gpus": [0], "partition": "batch"}
    node.admin.handle(request, ROOT_PEER)
    assert node.leases.tenants[3].given.job_class == "offline"
    assert [node.leases.tenants.loop.arbiter.tenants[n].offline for n in (1, 3)] == [False, True]
    node.restart()
    assert node.leases.tenants[3].given.job_class == "offline"
