"""A person signs in on the page of an OpenID Connect provider and comes back to the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.interfaces.http.openid_kit import providing, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The provider warns about its own libraries.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_person_signs_in_with_the_provider_and_signs_out(browser: Browser, tmp_path: Path) -> None:
    with providing() as issuer, serving(tmp_path, issuer) as url:
        page = browser.new_page()
        try:
            page.goto(url)
            page.get_by_role("button", name="Sign in with").click()
            assert page.url.startswith(issuer)
            page.locator("input[name=sub]").first.fill("ada")
            page.locator("button[type=submit], input[type=submit]").first.click()
            expect(page.locator(".who .name")).to_have_text("ada@example.com")
            assert page.url.startswith(url)
            page.get_by_role("button", name="sign out").click()
            expect(page.get_by_role("heading", name="You were signed out")).to_be_visible()
            page.get_by_role("button", name="sign in").click()
            expect(page.get_by_role("button", name="Sign in with")).to_be_visible()
        finally:
            page.close()
