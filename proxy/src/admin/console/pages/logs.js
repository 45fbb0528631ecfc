// The newest lines of this process's log.
import { get } from "../api.js";
import { choice, date, field, form, h, input, table } from "../dom.js";
import { words } from "../words.js";

const EVERY_MS = 3000;
const SHOWN = 100;
const LEVELS = ["error", "warn", "info", "debug", "trace"];
const told = words.logs;

function listed(lines) {
  if (!lines.length) return h("p", { class: "soft" }, told.none);
  const rows = lines.toReversed().map((line) => [
    date(line.at_ms),
    h("span", { class: line.level === "error" || line.level === "warn" ? "bad" : undefined }, line.level),
    h("code", {}, line.target),
    line.text,
  ]);
  return table(words.pages.logs, [[told.at], [told.level], [told.target, "key"], [told.text, "key"]], rows);
}

export async function page(parameters) {
  const { level, text } = parameters;
  const place = h("div");
  let seen;
  const refresh = async () => {
    const found = await get("log", { level, text, limit: SHOWN });
    // Whoever reads in the table keeps it until something has changed.
    if (found.next === seen || place.contains(document.activeElement)) return;
    seen = found.next;
    place.replaceChildren(listed(found.lines));
  };
  await refresh();
  const timer = setInterval(() => refresh().catch(() => undefined), EVERY_MS);
  const search = (data) => {
    const values = [...data].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
    location.hash = `#/logs?${new URLSearchParams(values)}`;
  };
  return {
    elements: [
      h("h1", {}, words.pages.logs),
      h("p", { class: "soft" }, told.help),
      form([field(told.atLeast, choice("level", LEVELS, level ?? "trace")), field(told.containing, input("text", { value: text ?? "" }))], words.search, search, { role: "search" }),
      place,
    ],
    leave: () => clearInterval(timer),
  };
}
