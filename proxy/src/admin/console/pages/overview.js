// What an operator looks at first.
import { get } from "../api.js";
import { history } from "../chart.js";
import { button, bytes, count, date, h, link, ratio, table } from "../dom.js";
import { words } from "../words.js";

const card = (title, big, ...more) => h("section", { class: "card" }, h("h2", {}, title), h("p", { class: "big" }, big), more);
const soft = (...text) => h("p", { class: "soft" }, ...text);

/** When disks will be full if the store grows as it did. */
function forecast({ since_ms: since, counts, bytes_per_day: growth, disks }) {
  const told = words.forecast;
  if (growth === null) return card(told.title, told.unknown, soft(told.short));
  return card(
    told.title,
    growth > 0 ? told.growth(bytes(growth)) : told.steady,
    disks.length === 0 && soft(told.elsewhere),
    disks.map((disk) => soft(disk.full_ms ? told.full(disk.place, date(disk.full_ms).slice(0, 10)) : told.never(disk.place))),
    soft(told.method(count(counts), date(since))),
  );
}

function replicas(all) {
  const rows = all.map(({ epoch, silent_ms, alive }) => [
    String(epoch),
    words.seconds((silent_ms / 1000).toFixed(0)),
    h("span", { class: alive ? "good" : "bad" }, alive ? words.alive : words.gone),
  ]);
  return [h("h2", {}, words.replicas), table(words.replicas, [[words.replica, "number"], [words.silent, "number"], [words.state]], rows)];
}

function cards(overview) {
  const { totals, health } = overview;
  const all = totals.logical_bytes + totals.noncurrent_bytes;
  const stored = totals.stored.total + totals.foreign_bytes;
  const waiting = overview.jobs.filter((job) => job.backlog > 0 || job.running);
  return h(
    "div",
    { class: "cards" },
    card(
      words.figures.saved,
      bytes(Math.max(0, all - stored)),
      soft(words.figures.of(bytes(all), bytes(stored), ratio(all, stored))),
      soft(words.figures.counted(date(overview.counted_ms))),
    ),
    card(
      words.figures.health,
      h("span", { class: health.ready ? "good" : "bad" }, health.ready ? words.figures.ready : words.figures.notReady),
      health.reason && h("p", { class: "bad" }, health.reason),
      h("p", { class: overview.quarantined ? "bad" : "soft" }, words.figures.quarantined(overview.quarantined)),
      soft(words.figures.journal(overview.journal.lag_entries)),
    ),
    card(
      words.figures.waiting,
      waiting.length ? count(waiting.reduce((sum, job) => sum + (job.backlog ?? 0), 0)) : words.figures.nothingWaits,
      waiting.map((job) => soft(h("a", { href: "#/jobs" }, job.name), ` ${job.running ? words.jobStates.running : words.figures.items(count(job.backlog))}`)),
    ),
    card(
      words.figures.store,
      bytes(stored),
      soft(words.figures.objects(count(totals.objects), count(overview.buckets))),
      soft(overview.shared ? words.figures.shared : words.figures.alone),
      soft(words.figures.version(overview.version, overview.commit)),
    ),
    forecast(overview.forecast),
  );
}

const GB = 1e9;
const ROWS = 8;

/** Some of the counts in numbers, the newest one last: what was saved, and its price a month. */
function savings({ history: samples, prices }) {
  if (samples.length < 2) return undefined;
  const told = words.savings;
  const number = "number";
  const step = (samples.length - 1) / Math.min(ROWS - 1, samples.length - 1);
  const chosen = [...new Set(Array.from({ length: Math.min(ROWS, samples.length) }, (_, at) => Math.round(at * step)))].map((at) => samples[at]);
  const columns = [[told.at], [words.logical, number], [words.stored, number], [words.figures.saved, number], ...(prices ? [[told.money(prices.currency), number]] : [])];
  const rows = chosen.map(({ at_ms: at, logical_bytes: logical, stored_bytes: stored }) => [
    date(at),
    bytes(logical),
    bytes(stored),
    bytes(Math.max(0, logical - stored)),
    ...(prices ? [((Math.max(0, logical - stored) / GB) * prices.gb_month).toFixed(2)] : []),
  ]);
  return [h("h2", {}, told.title), table(told.title, columns, rows), !prices && soft(words.money.none)];
}

/** A recount on request: the only one that tells money. */
function counting() {
  const place = h("div", { "aria-live": "polite" });
  const run = async () => {
    const { money, totals } = await get("stats");
    const told = words.money;
    const amount = (value) => told.of(value, money.currency);
    place.replaceChildren(
      soft(words.figures.of(bytes(totals.logical_bytes + totals.noncurrent_bytes), bytes(totals.stored.total), ratio(totals.logical_bytes + totals.noncurrent_bytes, totals.stored.total))),
      money
        ? table(told.title, [[told.title], [told.saved, "number"], [told.stored, "number"], [told.deleting, "number"], [told.requests, "number"]], [
            [money.currency, amount(money.saved_month), amount(money.stored_month), amount(money.deleting_month), money.requests ? amount(money.requests.cost) : words.none],
          ])
        : soft(told.none),
    );
  };
  return [h("p", { class: "row" }, button(words.countNow, run, { id: "count-now" })), soft(words.countHelp), place];
}

export async function page() {
  const [overview, { buckets }] = await Promise.all([get("overview"), get("buckets")]);
  const rows = buckets.map((bucket) => [
    link("objects", { bucket: bucket.name }, bucket.name),
    count(bucket.objects),
    bytes(bucket.logical_bytes),
    bytes(bucket.stored_bytes),
    ratio(bucket.logical_bytes, bucket.stored_bytes),
  ]);
  const number = "number";
  const disks = overview.disks.map((disk) => [disk.place, bytes(disk.size_bytes), bytes(disk.free_bytes)]);
  return {
    elements: [
      h("h1", {}, words.pages.overview),
      cards(overview),
      h("h2", {}, words.saved),
      h("div", { class: "card" }, history(overview.history) ?? soft(words.historyShort), soft(words.historyLegend)),
      savings(overview),
      counting(),
      h("h2", {}, words.buckets),
      rows.length
        ? table(words.buckets, [[words.bucket], [words.objects, number], [words.logical, number], [words.stored, number], [words.ratio, number]], rows)
        : soft(words.noBuckets),
      h("h2", {}, words.backends),
      table(words.backends, [[words.backend], [words.stored, number]], overview.backends.map((one) => [one.name, bytes(one.stored_bytes)])),
      overview.shared && replicas(overview.replicas),
      disks.length > 0 && h("h2", {}, words.disks),
      disks.length > 0 && table(words.disks, [[words.disk], [words.size, number], [words.free, number]], disks),
    ],
  };
}
