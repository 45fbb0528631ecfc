// Takes the admin token and opens a session with it, or leads to the sign-in and makes a session of it.
import { get, logIn } from "../api.js";
import { field, h } from "../dom.js";
import { words } from "../words.js";

export async function page(parameters, show) {
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true, "aria-describedby": "token-help" });
  const refused = h("p", { class: "bad", role: "alert" });
  const enter = async (event) => {
    event.preventDefault();
    try {
      await logIn({ token: token.value.trim() });
      await show();
    } catch (error) {
      refused.textContent = error.message;
      token.focus();
    }
  };
  if (parameters.code) {
    // The code is used up: it does not stay in the address.
    history.replaceState(undefined, "", "#/overview");
    try {
      await logIn({ code: parameters.code });
      await show();
    } catch (error) {
      refused.textContent = error.message;
    }
  }
  const { enabled, name } = await get("oidc").catch(() => ({}));
  return {
    elements: [
      h("h1", {}, words.pages.login),
      h("p", { id: "token-help", class: "soft" }, words.login.help),
      h("form", { class: "row", onsubmit: enter }, field(words.login.token, token), h("button", { class: "main" }, words.login.button)),
      enabled && h("p", {}, h("a", { href: "/api/v1/oidc/login" }, words.login.signIn(name))),
      refused,
    ],
  };
}
