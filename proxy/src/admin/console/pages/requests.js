// What this process answers now: sums by operation and bucket, the newest requests, and one of
// them step by step.
import { get } from "../api.js";
import { bytes, count, date, facts, field, h, link, table } from "../dom.js";
import { words } from "../words.js";

const EVERY_MS = 3000;
const SHOWN = 100;
const told = words.requests;

const where = ({ bucket, key }) => (bucket ? (key ? `${bucket}/${key}` : bucket) : words.none);
const ms = (value) => (value === undefined ? words.none : `${value.toFixed(1)} ms`);

/** The traffic between two looks, a second; between the start and the first. */
function rates(before, now) {
  const name = ({ op, bucket }) => `${op} ${bucket}`;
  const old = new Map(before?.since_ms === now.since_ms ? before.traffic.map((row) => [name(row), row]) : []);
  const seconds = Math.max((now.now_ms - (old.size ? before.now_ms : now.since_ms)) / 1000, 0.001);
  const since = (row, figure) => row[figure] - (old.get(name(row))?.[figure] ?? 0);
  return now.traffic
    .map((row) => ({ row, requests: since(row, "requests"), since: (figure) => since(row, figure), seconds }))
    .filter(({ requests }) => requests > 0)
    .sort((a, b) => b.requests - a.requests);
}

function traffic(before, now) {
  const found = rates(before, now);
  if (!found.length) return h("p", { class: "soft" }, told.quiet);
  const number = "number";
  const columns = [[told.op], [words.bucket], [told.rate, number], [told.clientErrors, number], [told.serverErrors, number], [told.in, number], [told.out, number], [told.mean, number]];
  const rows = found.map(({ row, requests, since, seconds }) => [
    row.op,
    row.bucket || words.none,
    (requests / seconds).toFixed(1),
    count(since("client_errors")),
    count(since("server_errors") + since("cut")),
    `${bytes(since("bytes_in") / seconds)}/s`,
    `${bytes(since("bytes_out") / seconds)}/s`,
    ms(since("ms") / requests),
  ]);
  return table(told.traffic, columns, rows);
}

function listed(requests) {
  if (!requests.length) return h("p", { class: "soft" }, told.none);
  const number = "number";
  const columns = [[told.began], [told.id, "key"], [told.op], [told.status, number], [told.took, number], [told.what, "key"], [told.user], [told.peer], [told.program]];
  const rows = requests.toReversed().map((request) => [
    date(request.at_ms),
    link("requests", { id: request.request_id }, h("code", {}, request.request_id)),
    request.op,
    h("span", { class: request.status >= 500 ? "bad" : undefined }, `${request.status}${request.code ? ` ${request.code}` : ""}`),
    ms(request.ms),
    where(request),
    request.user || words.none,
    request.peer ?? words.none,
    request.program ?? words.none,
  ]);
  return table(told.newest, columns, rows);
}

/** One request, step by step. */
async function traced(id) {
  const request = await get(`requests/${encodeURIComponent(id)}`);
  return {
    elements: [
      h("h1", {}, told.one(request.request_id)),
      facts([
        [told.began, date(request.at_ms)],
        [told.op, request.op],
        [told.what, where(request)],
        [told.status, `${request.status}${request.code ? ` ${request.code}` : ""}`],
        [told.end, told.ends[request.end]],
        [told.user, request.user || words.none],
        [told.peer, request.peer ?? words.none],
        [told.via, request.via],
        [told.program, request.program ?? words.none],
        [words.form, request.form && words.forms[request.form]],
        [told.in, bytes(request.bytes_in)],
        [told.out, bytes(request.bytes_out)],
      ]),
      h("h2", {}, told.steps),
      table(told.steps, [[told.step], [told.after, "number"]], request.steps.map(({ step, ms: at }) => [told.stepNames[step] ?? step, ms(at)])),
      h("p", {}, link("requests", {}, told.back)),
    ],
  };
}

function filters(parameters) {
  const input = (name) => h("input", { name, value: parameters[name] ?? "", spellcheck: "false", autocomplete: "off" });
  const names = ["op", "bucket", "user", "status", "id"];
  return h(
    "form",
    {
      class: "row",
      onsubmit: (event) => {
        event.preventDefault();
        const values = [...new FormData(event.target)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
        const id = values.find(([name]) => name === "id");
        location.hash = `#/requests?${new URLSearchParams(id ? [id] : values)}`;
      },
    },
    names.map((name) => field(told.filters[name], input(name))),
    h("button", {}, words.search),
  );
}

export async function page(parameters) {
  if (parameters.id) return traced(parameters.id);
  const [sums, newest] = [h("div"), h("div")];
  let before;
  let seen;
  const refresh = async () => {
    const { op, bucket, user, status } = parameters;
    const [now, found] = await Promise.all([get("traffic"), get("requests", { op, bucket, user, status, limit: SHOWN })]);
    sums.replaceChildren(traffic(before, now));
    before = now;
    // Whoever reads or works in the table keeps it until something has changed.
    if (found.next === seen || newest.contains(document.activeElement)) return;
    seen = found.next;
    newest.replaceChildren(listed(found.requests));
  };
  await refresh();
  const timer = setInterval(() => refresh().catch(() => undefined), EVERY_MS);
  return {
    elements: [
      h("h1", {}, words.pages.requests),
      h("p", { class: "soft" }, told.help),
      h("h2", {}, told.traffic),
      sums,
      h("h2", {}, told.newest),
      filters(parameters),
      newest,
    ],
    leave: () => clearInterval(timer),
  };
}
