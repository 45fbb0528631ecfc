// Takes the admin token and opens a session with it.
import { logIn } from "../api.js";
import { field, h } from "../dom.js";
import { words } from "../words.js";

export async function page(_parameters, show) {
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true, "aria-describedby": "token-help" });
  const refused = h("p", { class: "bad", role: "alert" });
  const enter = async (event) => {
    event.preventDefault();
    try {
      await logIn(token.value.trim());
      await show();
    } catch (error) {
      refused.textContent = error.message;
      token.focus();
    }
  };
  return {
    elements: [
      h("h1", {}, words.pages.login),
      h("p", { id: "token-help", class: "soft" }, words.login.help),
      h("form", { class: "row", onsubmit: enter }, field(words.login.token, token), h("button", { class: "main" }, words.login.button)),
      refused,
    ],
  };
}
