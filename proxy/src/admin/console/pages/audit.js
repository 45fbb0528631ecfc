// Who changed what, and who was refused: the audit log of this process, newest first.
import { get } from "../api.js";
import { button, count, field, form, h, input, link, say, table } from "../dom.js";
import { words } from "../words.js";

const told = words.audit;
const SHOWN = 100;
const FILTERS = ["user", "action", "bucket", "since", "until", "request_id"];
const FIRST = ["seq", "at", "kind", "op", "method", "action", "user", "peer", "bucket", "key", "key_digest", "request_id", "status"];
const LEFT_OUT = [...FIRST, "hash"];

const where = ({ bucket, key, key_digest: digest }) => (bucket ? `${bucket}${key ? `/${key}` : digest ? `/${digest}` : ""}` : words.none);
const operation = ({ method, op, action }) => [method, op, action].filter(Boolean).join(" ");

function rows(lines) {
  return lines.map((line) => [
    String(line.seq),
    line.at,
    line.kind,
    h("code", {}, operation(line)),
    line.user ?? words.none,
    where(line),
    h("span", { class: line.status >= 400 ? "bad" : undefined }, line.status ? String(line.status) : words.none),
    Object.entries(line)
      .filter(([name]) => !LEFT_OUT.includes(name))
      .map(([name, value]) => h("div", {}, `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`)),
    line.peer ?? words.none,
  ]);
}

export async function page(parameters) {
  const { before } = parameters;
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, parameters[name] || undefined]));
  const found = await get("audit", { ...wanted, before, limit: SHOWN });
  const chosen = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value));
  const search = (data) => {
    const values = [...data].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
    location.hash = `#/audit?${new URLSearchParams(values)}`;
  };
  const verify = async () => say(told.whole(count((await get("audit/verify")).lines)));
  const number = "number";
  const columns = [[told.seq, number], [told.at], [told.kind], [told.op, "key"], [told.user], [told.about, "key"], [told.status, number], [told.more, "key"], [told.peer]];
  return {
    elements: [
      h("h1", {}, words.pages.audit),
      h("p", { class: "soft" }, told.help),
      form(FILTERS.map((name) => field(told.filters[name], input(name, { value: parameters[name] ?? "" }))), words.search, search, { role: "search" }),
      found.lines.length ? table(words.pages.audit, columns, rows(found.lines)) : h("p", { class: "soft" }, told.none),
      h("p", { class: "soft" }, told.looked(count(found.looked_at))),
      h("p", { class: "row" }, before && link("audit", chosen, told.newest), found.next && link("audit", { ...chosen, before: found.next }, told.older)),
      h("p", {}, button(told.verify, verify)),
    ],
  };
}
