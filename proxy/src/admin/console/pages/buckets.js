// Buckets: their figures and settings, what their rules would remove, and who may do what.
import { element, get, post, put } from "../api.js";
import { button, bytes, choice, confirmed, count, date, facts, field, form, h, input, link, ratio, say, table } from "../dom.js";
import { preview } from "../estimate.js";
import { quota } from "../quota.js";
import * as s3 from "../s3.js";
import { tester } from "../tester.js";
import { words } from "../words.js";
import { keysForm } from "./object.js";

const told = words.bucketSettings;
const AS_CONFIGURED = "as configured";
const shown = (value) => (typeof value === "object" ? h("code", {}, JSON.stringify(value)) : String(value));

function dryRun(bucket) {
  const place = h("div", { "aria-live": "polite" });
  const run = async (after) => {
    const found = await get("lifecycle", { bucket, after });
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
      found.next ? button(words.lifecycle.more, () => run(found.next)) : "",
    );
  };
  return [
    h("h2", {}, words.lifecycle.title),
    h("p", { class: "soft" }, words.lifecycle.help),
    h("p", {}, button(words.lifecycle.run, () => run(), { id: "dry-run" })),
    place,
  ];
}

/** One document of a bucket: read when it is opened, saved as it stands, taken away. */
function documentEditor(bucket, part) {
  const names = told.parts[part];
  const area = h("textarea", { class: "document", spellcheck: "false", name: part });
  const state = h("p", { class: "soft" });
  const read = async () => {
    const found = await s3.configuration(bucket, part);
    area.value = found ?? names.template.replaceAll("BUCKET", bucket);
    state.replaceChildren(found === undefined ? told.unset : told.isSet);
  };
  const save = async () => {
    await s3.configure(bucket, part, area.value);
    say(told.saved(names.title));
    await read();
  };
  const clear = async () => {
    if (!(await confirmed(told.clearAsk(names.title, bucket), told.clear))) return;
    await s3.unconfigure(bucket, part);
    say(told.cleared(names.title));
    await read();
  };
  const opened = h(
    "details",
    { id: `part-${part}`, ontoggle: () => opened.open && read().catch((error) => state.replaceChildren(error.message)) },
    h("summary", {}, names.title),
    h("p", { class: "soft" }, names.help),
    state,
    form(field(names.title, area), told.save, save),
    names.keeps ? "" : button(told.clear, clear, { class: "danger", "aria-label": `${told.clear}: ${names.title}` }),
  );
  return opened;
}

function versioning(bucket) {
  const place = h("p", { class: "soft" });
  const read = async () => place.replaceChildren(told.versioningIs(s3.textOf((await s3.configuration(bucket, "versioning")) ?? "", "Status") ?? told.never));
  const set = (status) => async () => {
    await s3.configure(bucket, "versioning", `<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>${status}</Status></VersioningConfiguration>`);
    await read();
  };
  const opened = h(
    "details",
    { id: "part-versioning", ontoggle: () => opened.open && read().catch((error) => place.replaceChildren(error.message)) },
    h("summary", {}, told.versioning),
    place,
    h("div", { class: "row" }, button(told.enable, set("Enabled")), button(told.suspend, set("Suspended"))),
  );
  return opened;
}

async function documents(bucket, show) {
  return [
    h("h2", {}, told.title),
    s3.haveKeys() ? [versioning(bucket), Object.keys(told.parts).map((part) => documentEditor(bucket, part))] : await keysForm(show),
  ];
}

function making(show) {
  const make = async (data) => {
    const name = data.get("name").trim();
    const encryption = data.get("encryption");
    if (encryption === AS_CONFIGURED) await s3.send("PUT", name, "");
    else await put(`buckets/${element(name)}`, {}, { encryption });
    say(told.made(name));
    location.hash = `#/buckets?${new URLSearchParams({ bucket: name })}`;
  };
  const fields = [
    field(words.bucket, input("name", { required: true, id: "new-bucket" })),
    field(told.encryption, choice("encryption", [AS_CONFIGURED, "aes256"], AS_CONFIGURED)),
  ];
  return [h("h2", {}, told.new), h("p", { class: "soft" }, told.newHelp), form(fields, told.make, make)];
}

/** What applies to new requests, whatever is stored. */
function rules(bucket) {
  const set = async (data) => {
    const wanted = { isolation: data.get("isolation"), storage_headers: data.get("storage_headers") };
    const { change } = await post(`buckets/${element(bucket.name)}`, {}, wanted);
    say(change);
  };
  return [
    h("h2", {}, told.rules),
    h("p", { class: "soft" }, told.rulesHelp),
    form(
      [
        field(told.isolation, choice("isolation", ["policy", "prefix", "strict", "bucket"], bucket.isolation)),
        field(told.storageHeaders, choice("storage_headers", ["administrators", "readers"], bucket.storage_headers)),
      ],
      told.save,
      set,
      { id: "rules" },
    ),
  ];
}

/** Objects from before the default encryption stay plain until somebody asks. */
function oldObjects({ name, default_encryption: algorithm }, show) {
  const encrypt = async () => {
    if (!(await confirmed(told.encryptOldAsk(name, algorithm), told.encryptOld))) return;
    await post("jobs/reencrypt", {}, { bucket: name });
    say(words.jobDone(words.jobActions.start, "reencrypt"));
    await show();
  };
  return [
    h("h2", {}, told.defaultEncryption(algorithm)),
    h("p", { class: "soft" }, told.encryptOldHelp),
    h("p", {}, button(told.encryptOld, encrypt, { id: "encrypt-old" })),
  ];
}

function removing(bucket) {
  const work = async () => {
    if (!(await confirmed(told.removeAsk(bucket), told.remove))) return;
    await s3.send("DELETE", bucket, "");
    say(told.removed(bucket));
    location.hash = "#/buckets";
  };
  return h("p", {}, button(told.remove, work, { class: "danger" }));
}

export async function page({ bucket: wanted }, show) {
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
  const columns = [[words.bucket], [told.compression], [told.encryption], [words.objects, number], [words.logical, number], [words.stored, number], [words.ratio, number]];
  return {
    elements: [
      h("h1", {}, words.pages.buckets),
      rows.length ? table(words.buckets, columns, rows) : h("p", { class: "soft" }, words.noBuckets),
      chosen && [
        h("h2", {}, `${words.settings}: ${chosen.name}`),
        facts(Object.entries(chosen.settings).map(([name, value]) => [name, shown(value)])),
        await preview(chosen.name, chosen.settings.compression),
        await quota({ bucket: chosen.name }),
        rules(chosen),
        chosen.default_encryption && oldObjects(chosen, show),
        await documents(chosen.name, show),
        dryRun(chosen.name),
        tester({ resource: `arn:aws:s3:::${chosen.name}/key` }),
        s3.haveKeys() && removing(chosen.name),
      ],
      s3.haveKeys() ? making(show) : !chosen && (await keysForm(show)),
    ],
  };
}
