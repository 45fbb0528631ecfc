// Buckets: their figures and settings, what their rules would remove, and who may do what.
import { get } from "../api.js";
import { bytes, count, date, facts, field, h, link, ratio, table } from "../dom.js";
import { words } from "../words.js";

const shown = (value) => (typeof value === "object" ? h("code", {}, JSON.stringify(value)) : String(value));

function dryRun(bucket) {
  const place = h("div", { "aria-live": "polite" });
  const run = async () => {
    const found = await get("lifecycle", { bucket });
    const rows = found.due.map((due) => [
      words.lifecycle.kinds[due.what],
      due.key,
      due.version,
      bytes(due.size),
      date(due.last_modified_ms),
      due.locked ? words.explain.yes : words.explain.no,
    ]);
    const columns = [[words.lifecycle.what], [words.key, "key"], [words.facts.version], [words.size, "number"], [words.changed], [words.lifecycle.locked]];
    place.replaceChildren(
      h("p", { class: "soft" }, words.lifecycle.rules(found.rules, count(found.looked_at))),
      rows.length ? table(words.lifecycle.title, columns, rows) : h("p", {}, words.lifecycle.none),
      found.next ? h("p", { class: "soft" }, words.lifecycle.more) : "",
    );
  };
  return [
    h("h2", {}, words.lifecycle.title),
    h("p", { class: "soft" }, words.lifecycle.help),
    h("p", {}, h("button", { type: "button", onclick: run, id: "dry-run" }, words.lifecycle.run)),
    place,
  ];
}

function tester(bucket) {
  const input = (value) => h("input", { type: "text", value, required: true });
  const [user, action, resource] = [input("anonymous"), input("s3:GetObject"), input(`arn:aws:s3:::${bucket}/key`)];
  const place = h("div", { "aria-live": "polite" });
  const ask = async (event) => {
    event.preventDefault();
    try {
      const verdict = await get("policy", { user: user.value, action: action.value, resource: resource.value });
      place.replaceChildren(
        h("p", { class: verdict.allowed ? "good" : "bad" }, verdict.allowed ? words.policy.allowed : words.policy.denied),
        facts(Object.entries(verdict).filter(([name, value]) => value !== null && !["allowed", "missing"].includes(name)).map(([name, value]) => [name, shown(value)])),
        verdict.missing?.length ? h("p", { class: "soft" }, words.policy.missing(verdict.missing)) : "",
      );
    } catch (error) {
      place.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
    }
  };
  return [
    h("h2", {}, words.policy.title),
    h("p", { class: "soft" }, words.policy.help),
    h(
      "form",
      { class: "row", onsubmit: ask },
      field(words.policy.user, user),
      field(words.policy.action, action),
      field(words.policy.resource, resource),
      h("button", {}, words.policy.test),
    ),
    place,
  ];
}

export async function page({ bucket: wanted }) {
  const { buckets } = await get("buckets");
  const chosen = buckets.find(({ name }) => name === wanted) ?? buckets[0];
  const number = "number";
  const rows = buckets.map((bucket) => [
    link("buckets", { bucket: bucket.name }, bucket.name),
    bucket.settings.compression ?? words.none,
    bucket.settings.encryption ?? words.none,
    count(bucket.objects),
    bytes(bucket.logical_bytes),
    bytes(bucket.stored_bytes),
    ratio(bucket.logical_bytes, bucket.stored_bytes),
  ]);
  const columns = [[words.bucket], ["compression"], ["encryption"], [words.objects, number], [words.logical, number], [words.stored, number], [words.ratio, number]];
  return {
    elements: [
      h("h1", {}, words.pages.buckets),
      rows.length ? table(words.buckets, columns, rows) : h("p", { class: "soft" }, words.noBuckets),
      chosen && [
        h("h2", {}, `${words.settings}: ${chosen.name}`),
        facts(Object.entries(chosen.settings).map(([name, value]) => [name, shown(value)])),
        dryRun(chosen.name),
        tester(chosen.name),
      ],
    ],
  };
}
