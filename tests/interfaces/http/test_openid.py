"""Sign-in with an OpenID Connect provider, against a provider that runs in the test."""

from __future__ import annotations

import http.cookiejar
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest

from tests.interfaces.http.openid_kit import providing, serving

# The provider warns about its own libraries.
pytestmark = pytest.mark.filterwarnings("ignore")


class Stay(urllib.request.HTTPRedirectHandler):
    """Do not follow redirects, so that each step can be seen."""

    def redirect_request(self, *_: object) -> None:
        return None


class Browser:
    """Cookies, and no automatic redirects."""

    def __init__(self) -> None:
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(jar, Stay)

    def open(self, url: str, form: dict[str, str] | None = None) -> tuple[int, str, str]:
        """Return the status, the target of a redirect, and the text."""
        body = urllib.parse.urlencode(form).encode() if form is not None else None
        sent = urllib.request.Request(url, data=body, headers={"accept": "text/html"})
        try:
            with self._opener.open(sent, timeout=30) as answer:
                return answer.status, answer.headers.get("location", ""), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("location", ""), error.read().decode()

    def sign_in(self, site: str, person: str) -> tuple[int, str, str]:
        """Go to the provider, sign in there, and come back."""
        status, page, _ = self.open(f"{site}/session/openid")
        assert status == 303
        query = dict(urllib.parse.parse_qsl(page.partition("?")[2]))
        assert query["code_challenge_method"] == "S256"
        assert {"state", "nonce", "code_challenge"} <= set(query)
        status, back, _ = self.open(page, {"sub": person})
        assert status in (302, 303)
        return self.open(back)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with providing() as issuer, serving(tmp_path_factory.mktemp("oidc"), issuer) as url:
        yield url


def session(browser: Browser, site: str) -> dict[str, object]:
    status, _, text = browser.open(f"{site}/session")
    return json.loads(text) if status == 200 else {"status": status}


def test_a_person_signs_in_and_the_first_fitting_group_gives_the_role(site: str) -> None:
    browser = Browser()
    status, _, page = browser.sign_in(site, "ada")
    assert (status, "http-equiv='refresh'" in page) == (200, True)
    found = session(browser, site)
    assert found["actor"] == "ada@example.com"
    assert "admin" in found["scopes"]  # type: ignore[operator]


def test_a_role_can_be_limited_to_namespaces(site: str) -> None:
    browser = Browser()
    browser.sign_in(site, "bob")
    found = session(browser, site)
    assert (found["actor"], found["scopes"]) == ("bob", ["read"])
    assert found["namespaces"] == ["team-a", "team-b"]


def test_a_person_in_no_group_is_told_so(site: str) -> None:
    browser = Browser()
    status, _, page = browser.sign_in(site, "sam")
    assert (status, "sam is in no group that may sign in" in page) == (401, True)
    assert session(browser, site) == {"status": 401}


def test_an_answer_that_another_browser_asked_for_is_refused(site: str) -> None:
    mine, theirs = Browser(), Browser()
    _, page, _ = mine.open(f"{site}/session/openid")
    _, back, _ = mine.open(page, {"sub": "ada"})
    status, _, text = theirs.open(back)
    assert (status, "not begun in this browser" in text) == (401, True)
    changed = re.sub("state=[^&]+", "state=other", back)
    assert mine.open(changed)[0] == 401
    assert mine.open(back)[0] == 200
    assert mine.open(back)[0] == 401, "a code works once"


def test_the_sign_in_page_offers_the_provider_and_takes_a_key(site: str) -> None:
    status, _, page = Browser().open(f"{site}/")
    assert status == 401
    assert "Sign in with localhost" in page
    assert 'name="key"' in page
    status, _, page = Browser().open(f"{site}/", {"key": "tw_wrong"})
    assert (status, "API key missing or invalid" in page) == (401, True)
