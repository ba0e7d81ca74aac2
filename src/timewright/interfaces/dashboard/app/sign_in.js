// Sign out, and the way to sign in again.

import { currentUser, endSession } from "../base/api.js";
import { h, replace } from "../base/dom.js";
import { tryAction } from "../components/messages.js";
import { stopRefreshing } from "./refresh.js";
import { app } from "./state.js";

// End the session of this browser; signing in again needs a new link.
export const signOut = () => tryAction(endSession);

// Replace the page by the way to sign in; the address stays, so that it leads back to the same screen.
const RETURN_TO = "timewright-return-to";
export function showSignIn(title) {
  if (app.signedOut) return;
  app.signedOut = true;
  app.events.end();
  stopRefreshing();
  for (const dialog of document.querySelectorAll("dialog")) dialog.remove();
  document.title = `${title} · Timewright`;
  // A provider sends the browser back without the part of the address after the #.
  sessionStorage.setItem(RETURN_TO, location.hash);
  const page = currentUser().sign_in_url;
  replace(
    document.getElementById("app"),
    h(
      "main",
      { id: "main", class: "closed", tabindex: "-1" },
      h("h1", null, title),
      h(
        "p",
        null,
        page
          ? h("a", { href: page }, "Sign in again")
          : h("button", { type: "button", class: "main", onclick: () => location.reload() }, "sign in"),
      ),
    ),
  );
}

export function returnToScreen() {
  const hash = sessionStorage.getItem(RETURN_TO);
  sessionStorage.removeItem(RETURN_TO);
  if (hash && !location.hash) history.replaceState(null, "", hash);
}
