// The policy tester: the engine's own answer to who may do what, and why.
import { get } from "./api.js";
import { facts, field, form, h, input } from "./dom.js";
import { words } from "./words.js";

const shown = (value) => (typeof value === "object" ? h("code", {}, JSON.stringify(value)) : String(value));
const LEFT_OUT = ["allowed", "missing"];

export function tester({ user = "anonymous", resource }) {
  const place = h("div", { "aria-live": "polite" });
  const ask = async (data) => {
    place.replaceChildren();
    const context = data.get("context").trim() || undefined;
    const verdict = await get("policy", { user: data.get("user"), action: data.get("action"), resource: data.get("resource"), context });
    const told = Object.entries(verdict).filter(([name, value]) => value !== null && !LEFT_OUT.includes(name));
    place.replaceChildren(
      h("p", { class: verdict.allowed ? "good" : "bad" }, verdict.allowed ? words.policy.allowed : words.policy.denied),
      facts(told.map(([name, value]) => [name, shown(value)])),
      verdict.missing?.length ? h("p", { class: "soft" }, words.policy.missing(verdict.missing)) : "",
    );
  };
  return [
    h("h2", {}, words.policy.title),
    h("p", { class: "soft" }, words.policy.help),
    form(
      [
        field(words.policy.user, input("user", { value: user, required: true })),
        field(words.policy.action, input("action", { value: "s3:GetObject", required: true })),
        field(words.policy.resource, input("resource", { value: resource, required: true })),
        field(words.policy.context, input("context", { placeholder: '{"aws:SecureTransport": "true"}' })),
      ],
      words.policy.test,
      ask,
    ),
    place,
  ];
}
