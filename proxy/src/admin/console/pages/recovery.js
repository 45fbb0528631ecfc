// Damage, scrubs, and what a recovery would begin with.
import { get, post } from "../api.js";
import { button, bytes, confirmed, count, date, facts, h, link, say, table } from "../dom.js";
import { words } from "../words.js";

const start = (job, label, show) =>
  h("button", { type: "button", onclick: () => post(`jobs/${job}`, {}, null).then(() => say(words.jobDone(words.jobActions.start, job)), (error) => say(error.message)).then(show) }, label);

function affected(found) {
  const { bucket, key, version, part } = found;
  const name = part ? `${key} (${part[0]}, ${part[1]})` : link("object", { bucket, key, version }, key);
  return [bucket, name, version ?? words.none];
}

function damage(quarantine) {
  if (!quarantine.blobs.length) return h("p", { class: "good" }, words.noDamage);
  const blobs = quarantine.blobs.map((blob) => [h("code", {}, blob.blob), blob.backend, date(blob.since_ms), blob.what]);
  return [
    table(words.damage, [[words.explain.blob, "key"], [words.backend], [words.since], [words.found]], blobs),
    h("h2", {}, words.affected),
    table(words.affected, [[words.bucket], [words.key, "key"], [words.facts.version]], quarantine.affected.map(affected)),
  ];
}

function keys(told, show) {
  const number = "number";
  const state = ({ active, here }) => (active ? words.sealingKeys.wraps : here ? words.sealingKeys.opens : words.sealingKeys.missing);
  const keks = told.keks.map((kek) => [h("code", {}, kek.kek), `${kek.provider} ${kek.provider_key}`, state(kek), count(kek.wraps)]);
  const used = ({ epoch, blobs }) => (epoch ? words.sealingKeys.epoch(epoch, count(blobs)) : words.sealingKeys.similarity);
  const verify = async () => {
    const { wraps, problems } = await get("keys/check");
    say(problems.length ? problems.join("; ") : words.sealingKeys.whole(count(wraps)));
  };
  const rotate = async () => {
    if (!(await confirmed(words.sealingKeys.rotateAsked, words.sealingKeys.rotate))) return;
    const { kek, wraps } = await post("keys/rotate", {}, null);
    say(words.sealingKeys.rotated(kek, count(wraps)));
    await show();
  };
  const reencrypt = async (bucket) => {
    if (!(await confirmed(words.sealingKeys.reencryptAsked(bucket), words.sealingKeys.reencrypt))) return;
    await post("jobs/reencrypt", {}, { bucket });
    say(words.jobDone(words.jobActions.start, "reencrypt"));
    await show();
  };
  const shred = async (bucket) => {
    const { keys, obstacles } = await get("keys/shred", { bucket });
    const epochs = keys.map(({ epoch }) => epoch).join(", ");
    if (obstacles.length || !keys.length) return say(obstacles.join("; ") || words.sealingKeys.noFormer(bucket));
    if (!(await confirmed(words.sealingKeys.shredAsked(epochs, bucket), words.sealingKeys.shred))) return;
    const told = await post("keys/shred", { bucket }, null);
    say(told.obstacles.join("; ") || words.sealingKeys.shredded(epochs, bucket));
    await show();
  };
  const acts = ({ bucket, newest, epoch }) =>
    bucket && epoch ? h("span", { class: "row" }, newest ? button(words.sealingKeys.reencrypt, () => reencrypt(bucket)) : button(words.sealingKeys.shred, () => shred(bucket))) : "";
  const domains = told.keys.map((key) => [key.bucket ?? words.sealingKeys.deleted, used(key), h("code", {}, key.kek), acts(key)]);
  return [
    h("h2", {}, words.sealingKeys.title),
    keks.length ? table(words.sealingKeys.title, [[words.sealingKeys.kek, "key"], [words.sealingKeys.keptBy, "key"], [words.sealingKeys.state], [words.sealingKeys.count, number]], keks) : h("p", { class: "soft" }, words.sealingKeys.none),
    domains.length > 0 && table(words.sealingKeys.domains, [[words.bucket], [words.sealingKeys.use], [words.sealingKeys.kek, "key"], [words.actions]], domains),
    h("div", { class: "row" }, button(words.sealingKeys.verify, verify), button(words.sealingKeys.rotate, rotate)),
  ];
}

export async function page(_parameters, show) {
  const [quarantine, recovery, { backups }, sealedWith] = await Promise.all([get("quarantine"), get("recovery"), get("backups"), get("keys")]);
  const { scrub, journal } = recovery;
  const ship = async () => {
    const { entries } = await post("journal", {}, {});
    say(words.shipped(count(entries)));
    await show();
  };
  const number = "number";
  const rows = backups.toReversed().map((backup) => [h("code", {}, backup.id), date(backup.taken_ms), count(backup.rows), bytes(backup.stored_bytes)]);
  return {
    elements: [
      h("h1", {}, words.pages.recovery),
      recovery.refused_because && h("p", { class: "bad", role: "alert" }, words.refused(recovery.refused_because)),
      h("h2", {}, words.damage),
      damage(quarantine),
      h("h2", {}, words.scrub),
      h("p", {}, scrub.last_run_ms ? words.scrubLast(date(scrub.last_run_ms), scrub.last_result) : words.scrubNever),
      scrub.recovery && facts(Object.entries(scrub.recovery).map(([name, number]) => [name, count(number)])),
      h("p", {}, start("scrub", words.scrubRun, show)),
      h("h2", {}, words.recovery),
      h("p", {}, words.journalWaits(journal.waiting)),
      recovery.failover_warning && h("p", { class: "bad" }, recovery.failover_warning),
      h("h2", {}, words.backups),
      rows.length ? table(words.backups, [["id", "key"], [words.taken], [words.rows, number], [words.stored, number]], rows) : h("p", { class: "soft" }, words.noBackups),
      h("div", { class: "row" }, start("backup", words.backupNow, show), button(words.shipNow, ship)),
      keys(sealedWith, show),
    ],
  };
}
