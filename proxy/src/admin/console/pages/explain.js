// Why an object costs what it costs, as a picture and as numbers.
import { get, post, scope } from "../api.js";
import { KINDS, day, strip } from "../chart.js";
import { button, bytes, count, date, h, link, percent, table } from "../dom.js";
import { words } from "../words.js";

const told = words.explain;

function sums(map) {
  const of = (kind) => map.cells.reduce((sum, cell) => sum + (cell[kind] ?? 0), 0);
  return KINDS.map((kind) => [kind, of(kind)]).filter(([, sum]) => sum > 0);
}

function kinds(map) {
  const rows = sums(map).map(([kind, sum]) => [
    [h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), words.kinds[kind]],
    bytes(sum),
    percent(sum, map.size),
  ]);
  return table(told.kinds, [[told.kind], [told.bytes, "number"], [told.share, "number"]], rows);
}

function bases(bucket, map) {
  if (!map.bases.length) return h("p", { class: "soft" }, told.noBases);
  const name = (key) => link("explain", { bucket, key }, key);
  const rows = map.bases.map((base, at) => [
    h("span", { id: `base-${at}`, tabindex: -1 }, base.keys.length ? base.keys.map((key, n) => [n ? ", " : "", name(key)]) : told.unnamed),
    bytes(base.copied_bytes),
    bytes(base.footprint_bytes),
    [bytes(base.stored_len), " / ", bytes(base.plain_len)],
    base.fan_in > 1 ? [`${count(base.fan_in)}: `, base.needed_by.map((key, n) => [n ? ", " : "", name(key)])] : told.neededBy(0, []),
  ]);
  return table(told.bases, [[told.base, "key"], [told.gives, "number"], [told.reads, "number"], [words.stored, "number"], [told.needs, "key"]], rows);
}

function verdict(candidate) {
  if (candidate.chosen) return h("strong", {}, told.chosen);
  if (candidate.trial_permille !== undefined) return told.lostTrial;
  return candidate.overlap_permille !== undefined ? told.lostOverlap : told.lostUnknown;
}

function candidates(bucket, explained) {
  const choices = explained.blobs.flatMap((blob) => blob.choices ?? []);
  if (!choices.length) return h("p", { class: "soft" }, explained.bases.length ? told.candidatesUnknown : told.noCandidates);
  const permille = (share) => (share === undefined ? words.none : percent(share, 1000));
  const rows = choices.flatMap((choice) => {
    const where = `${bytes(choice.offset)} …`;
    const outcome = told.outcomes[choice.outcome] ?? choice.outcome;
    if (!choice.candidates?.length) return [[where, words.none, "", "", "", outcome]];
    return choice.candidates.map((one) => [
      where,
      link("explain", { bucket, key: one.key }, one.key),
      told.sources[one.source] ?? one.source,
      permille(one.overlap_permille),
      permille(one.trial_permille),
      verdict(one),
    ]);
  });
  const number = "number";
  return table(told.candidates, [[told.offset], [told.candidate, "key"], [told.source], [told.overlap, number], [told.trial, number], [told.verdict]], rows);
}

function blobs(explained) {
  const rows = explained.blobs.map((blob) => [
    link("blob", { blob: blob.id }, h("code", {}, blob.id)),
    words.forms[blob.form] ?? blob.form,
    bytes(blob.plain_len),
    bytes(blob.stored_len),
    Object.entries(blob.segments_by_coding ?? {}).map(([coding, number]) => `${number} ${coding}`).join(", "),
    blob.sealed ? told.yes : told.no,
  ]);
  const number = "number";
  return table(told.blobs, [[told.blob, "key"], [words.form], [words.logical, number], [words.stored, number], [told.segments], [told.sealed]], rows);
}

/** Containers and their streams: looked for when somebody asks, since all of the content is read for it. */
async function inside(bucket, key, version) {
  const names = told.inside;
  const number = "number";
  const place = h("div", { "aria-live": "polite" });
  const run = async () => {
    place.replaceChildren(h("p", { class: "soft" }, names.looking));
    const found = await post("streams", { bucket, key, version }, {}).catch((error) => (place.replaceChildren(), Promise.reject(error)));
    const sums = [
      [names.outer, found.containers],
      [names.nested, found.nested],
    ].flatMap(([level, kinds]) => Object.entries(kinds).map(([kind, one]) => [kind, level, count(one.streams), bytes(one.compressed_bytes), bytes(one.plain_bytes)]));
    const listed = found.streams.map((one) => [bytes(one.offset), one.container, bytes(one.compressed_bytes), bytes(one.plain_bytes), count(one.nested)]);
    place.replaceChildren(
      h("p", {}, sums.length ? names.outside(bytes(found.outside_bytes), bytes(found.bytes)) : names.none),
      sums.length ? table(names.containers, [[names.container], [names.level], [names.streams, number], [names.compressed, number], [names.plain, number]], sums) : "",
      listed.length ? table(names.streams, [[told.offset, number], [names.container], [names.compressed, number], [names.plain, number], [names.nested, number]], listed) : "",
      found.more ? h("p", { class: "soft" }, names.more) : "",
    );
  };
  const mayRun = (await scope()) !== "read";
  return [h("h2", {}, names.title), mayRun ? h("p", {}, button(names.run, run, { id: "look-inside" })) : "", h("p", { class: "soft" }, mayRun ? names.help : names.readOnly), place];
}

/** What happened to a version since it was stored: reads of the last day, and conversions of its blobs. */
function past(explained) {
  const conversions = explained.blobs.flatMap((blob) => (blob.conversions ?? []).map((one) => ({ ...one, blob: blob.id })));
  conversions.sort((a, b) => b.at_ms - a.at_ms);
  const reads = explained.reads;
  const sum = reads.reduce((all, one) => all + one.count, 0);
  const number = "number";
  const rows = conversions.map((one) => [
    date(one.at_ms),
    told.occasions[one.occasion] ?? one.occasion,
    words.forms[one.form] ?? one.form,
    bytes(one.stored_bytes),
    link("blob", { blob: one.blob }, h("code", {}, one.blob)),
  ]);
  return [
    h("h2", {}, told.past),
    h("div", { class: "card" }, day(reads, conversions, Date.now()), h("p", { class: "soft" }, told.pastHelp)),
    h("p", {}, told.readsTold(count(sum)), " ", told.storedTold(date(explained.last_modified_ms))),
    rows.length ? table(told.past, [[told.when], [told.occasion], [told.was, "key"], [words.stored, number], [told.blob, "key"]], rows) : h("p", { class: "soft" }, told.noConversions),
  ];
}

export async function page({ bucket, key, version }) {
  const [map, explained] = await Promise.all([get("map", { bucket, key, version }), get("explain", { bucket, key, version })]);
  const shares = sums(map).map(([kind, sum]) => `${percent(sum, map.size)} ${words.kinds[kind]}`);
  const show = (base) => document.getElementById(`base-${map.bases.indexOf(base)}`)?.focus();
  return {
    elements: [
      h("h1", {}, words.pages.explain),
      h("p", { class: "lead" }, told.takes(key, bytes(map.stored_bytes), bytes(map.size), percent(map.stored_bytes, map.size))),
      h("p", {}, map.form === "dedup" ? told.duplicate : told.parts(shares.join(", "))),
      h("p", {}, link("object", { bucket, key, ...(version ? { version } : {}) }, words.open(key))),
      h("h2", {}, told.picture),
      h("div", { class: "card" }, strip(map, show), h("p", { class: "soft" }, told.pictureHelp)),
      map.estimated_bytes > 0 && h("p", { class: "soft" }, told.estimated(bytes(map.estimated_bytes))),
      map.shown_bytes < map.size && h("p", { class: "soft" }, told.cut(bytes(map.shown_bytes))),
      h("h2", {}, told.kinds),
      kinds(map),
      h("h2", {}, told.bases),
      bases(bucket, map),
      h("h2", {}, told.candidates),
      candidates(bucket, explained),
      h("h2", {}, told.blobs),
      blobs(explained),
      await inside(bucket, key, version),
      past(explained),
    ],
  };
}
