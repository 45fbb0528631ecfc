// Users, their keys, groups and policies, and who may do what.
import { element, get, post, put, remove } from "../api.js";
import { button, choice, confirmed, count, facts, field, form, h, input, link, say, table } from "../dom.js";
import { held, quota } from "../quota.js";
import { tester } from "../tester.js";
import { words } from "../words.js";

const told = words.users;
const SHOWN_MAX = 200;
const NEW_POLICY = JSON.stringify({ Statement: [{ Effect: "Allow", Action: ["s3:GetObject", "s3:ListBucket"], Resource: ["arn:aws:s3:::releases", "arn:aws:s3:::releases/*"] }] }, null, 2);

/** The key pair that was just made: shown once, and gone with the next page. */
let fresh;
const pair = () => {
  const made = fresh;
  fresh = undefined;
  return (
    made?.secret_access_key &&
    h(
      "section",
      { class: "card", id: "fresh", "aria-label": told.fresh },
      h("h2", {}, told.fresh),
      facts([
        [words.keys.id, h("code", {}, made.access_key_id)],
        [words.keys.secret, h("code", {}, made.secret_access_key)],
      ]),
    )
  );
};

const listOf = (text) => text.split(/[\s,]+/).filter(Boolean);
const state = (enabled) => h("span", { class: enabled ? "good" : "bad" }, enabled ? told.enabled : told.disabled);
const yesNo = (enabled) => (enabled ? "disable" : "enable");

/** Does it, says what was done, and draws the page anew. */
const changes = (show) => async (work) => {
  const answer = await work();
  fresh = answer;
  say(answer.change);
  await show();
};

function add(change) {
  const work = (data) =>
    change(() =>
      put(`users/${element(data.get("name").trim())}`, {}, { policies: listOf(data.get("policies")), groups: listOf(data.get("groups")), key: data.get("key") !== null }),
    );
  return [
    h("h2", {}, told.add),
    form(
      [
        field(told.name, input("name", { required: true, id: "new-user" })),
        field(told.policies, input("policies", { placeholder: "readwrite" })),
        field(told.groups, input("groups")),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "key", checked: true }), told.withKey),
      ],
      told.addButton,
      work,
    ),
  ];
}

function userRows(users) {
  return users.map((user) => [
    link("users", { user: user.name }, user.name),
    state(user.enabled),
    user.policies.join(", ") || words.none,
    user.groups.join(", ") || words.none,
    count(user.keys.length),
    user.from_file ? told.fromFile : "",
  ]);
}

function userList(users) {
  const place = h("div");
  const draw = (text) => {
    const found = users.filter((user) => user.name.includes(text));
    const columns = [[told.name, "key"], [words.state], [told.policies], [told.groups], [told.keys, "number"], [told.from]];
    place.replaceChildren(
      found.length ? table(words.pages.users, columns, userRows(found.slice(0, SHOWN_MAX))) : h("p", { class: "soft" }, told.none),
      found.length > SHOWN_MAX ? h("p", { class: "soft" }, told.more(count(found.length))) : "",
    );
  };
  draw("");
  return [users.length > 10 && field(told.find, input("find", { oninput: (event) => draw(event.target.value.trim()) })), place];
}

function groupList(groups, change) {
  const rows = groups.map((group) => [
    group.name,
    group.policies.join(", ") || words.none,
    group.members.join(", ") || words.none,
    button(told.remove, () => change(() => remove(`groups/${element(group.name)}`)), { "aria-label": told.removeLabel(group.name) }),
  ]);
  return [
    h("h2", {}, told.groups),
    rows.length ? table(told.groups, [[told.group, "key"], [told.policies], [told.members], [words.actions]], rows) : h("p", { class: "soft" }, told.noGroups),
    form(field(told.group, input("name", { required: true })), told.addGroup, (data) => change(() => put(`groups/${element(data.get("name").trim())}`))),
  ];
}

function policyList(policies, change) {
  const rows = policies.map((policy) => [
    policy.built_in ? policy.name : link("users", { policy: policy.name }, policy.name),
    policy.built_in ? told.builtIn : "",
    JSON.stringify(policy.attached_to),
    policy.built_in ? "" : button(told.remove, () => change(() => remove(`policies/${element(policy.name)}`)), { "aria-label": told.removeLabel(policy.name) }),
  ]);
  const create = (data) => (location.hash = `#/users?${new URLSearchParams({ policy: data.get("name").trim() })}`);
  return [
    h("h2", {}, told.policies),
    table(told.policies, [[told.policy, "key"], [told.kind], [told.holders, "key"], [words.actions]], rows),
    form(field(told.policy, input("name", { required: true })), told.addPolicy, create),
  ];
}

function quotaList(quotas) {
  const whose = ({ bucket, user, owner }) => (bucket ? link("buckets", { bucket }, bucket) : user ? link("users", { user }, user) : h("code", {}, owner));
  const rows = quotas.map((one) => [one.bucket ? words.bucket : told.name, whose(one), held(one)]);
  return [h("h2", {}, words.quota.all), rows.length ? table(words.quota.all, [[told.kind], [words.quota.of, "key"], [words.quota.title]], rows) : h("p", { class: "soft" }, words.quota.none)];
}

function keyTable(user, change) {
  const name = element(user.name);
  const rows = user.keys.map((key) => [
    h("code", {}, key.id),
    state(key.enabled),
    key.created,
    h(
      "div",
      { class: "row" },
      button(told[yesNo(key.enabled)], () => change(() => post(`user-keys/${name}`, { action: yesNo(key.enabled), key: key.id }, {})), { "aria-label": `${told[yesNo(key.enabled)]} ${key.id}` }),
      button(
        told.revoke,
        async () => (await confirmed(told.revokeAsk(key.id), told.revoke)) && change(() => remove(`user-keys/${name}`, { key: key.id })),
        { "aria-label": `${told.revoke} ${key.id}`, class: "danger" },
      ),
    ),
  ]);
  return [
    h("h2", {}, told.keys),
    rows.length ? table(told.keys, [[words.keys.id, "key"], [words.state], [told.created], [words.actions]], rows) : h("p", { class: "soft" }, told.noKeys),
    h("p", {}, button(told.addKey, () => change(() => post(`user-keys/${name}`, {}, {})), { id: "add-key" })),
  ];
}

/** A list of names, each with a button that takes it away, and a choice of others to add. */
function membership(title, names, others, addLabel, work) {
  const items = names.map((name) => h("li", {}, name, " ", button(told.remove, () => work(name, false), { "aria-label": told.removeLabel(name) })));
  const left = others.filter((name) => !names.includes(name));
  return [
    h("h2", {}, title),
    items.length ? h("ul", {}, items) : h("p", { class: "soft" }, words.nothing),
    left.length > 0 && form(field(title, choice("name", left)), addLabel, (data) => work(data.get("name"), true)),
  ];
}

async function one(name, show) {
  const change = changes(show);
  const [user, { groups }, { policies }] = await Promise.all([get(`users/${element(name)}`), get("groups"), get("policies")]);
  const attach = (policy, adds) => change(() => post(`policies/${element(policy)}`, { action: adds ? "attach" : "detach", user: name }, {}));
  const join = (group, adds) => change(() => post(`groups/${element(group)}`, { action: adds ? "add" : "remove", user: name }, {}));
  const away = async () => {
    if (!(await confirmed(told.removeAsk(name), told.removeUser))) return;
    const answer = await remove(`users/${element(name)}`);
    say(answer.change);
    location.hash = "#/users";
  };
  return {
    elements: [
      h("h1", {}, name),
      pair(),
      facts([
        [words.state, state(user.enabled)],
        [told.account, h("code", {}, user.canonical_id)],
        [told.email, user.email ?? undefined],
        [told.created, user.created],
        [told.from, user.from_file ? told.fromFile : undefined],
      ]),
      h(
        "div",
        { class: "row" },
        button(told[yesNo(user.enabled)], () => change(() => post(`users/${element(name)}`, { action: yesNo(user.enabled) }, {}))),
        button(told.removeUser, away, { class: "danger" }),
        link("audit", { user: name }, told.audit),
      ),
      keyTable(user, change),
      membership(told.policies, user.policies, policies.map((policy) => policy.name), told.attach, attach),
      membership(told.groups, user.groups, groups.map((group) => group.name), told.join, join),
      await quota({ user: name }),
      tester({ user: name, resource: "arn:aws:s3:::releases/key" }),
      h("p", {}, link("users", {}, told.back)),
    ],
  };
}

async function onePolicy(name, show) {
  const found = await get(`policies/${element(name)}`).catch((error) => {
    if (error.status !== 404) throw error;
    return { document: undefined };
  });
  const text = found.document ? JSON.stringify(found.document, null, 2) : NEW_POLICY;
  const area = h("textarea", { name: "document", class: "document", spellcheck: "false" }, text);
  const save = async () => {
    const answer = await put(`policies/${element(name)}`, {}, JSON.parse(area.value));
    say(answer.change);
    await show();
  };
  return {
    elements: [
      h("h1", {}, name),
      h("p", { class: "soft" }, found.document ? told.policyHelp : told.policyNew),
      form(field(told.document, area), told.save, save),
      tester({ resource: "arn:aws:s3:::releases/key" }),
      h("p", {}, link("users", {}, told.back)),
    ],
  };
}

export async function page({ user, policy }, show) {
  if (user) return one(user, show);
  if (policy) return onePolicy(policy, show);
  const change = changes(show);
  const [{ users }, { groups }, { policies }, { quotas }] = await Promise.all([get("users"), get("groups"), get("policies"), get("quotas")]);
  return {
    elements: [
      h("h1", {}, words.pages.users),
      h("p", { class: "soft" }, told.help),
      pair(),
      userList(users),
      add(change),
      groupList(groups, change),
      policyList(policies, change),
      quotaList(quotas),
      tester({ resource: "arn:aws:s3:::releases/key" }),
    ],
  };
}
