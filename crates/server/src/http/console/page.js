"use strict";
// What is shown comes from the server as JSON. Texts are only ever set as text: keys and values may be anything.

const EVERY_MS = 1000;
const POINTS = 120;
const CHARTS = [
  ["commands", "Commands a second", (now) => now.commands, count],
  ["latency", "Mean latency of a command", (now) => now.latency, duration],
  ["commits", "Transactions committed a second", (now) => now.commits, count],
  ["restarts", "Executions thrown away a second", (now) => now.restarts, count],
];

const byId = (id) => document.getElementById(id);
let before = null;
let paused = false;
const history = [];

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function count(number) {
  if (number === null) return "–";
  if (number >= 1e6) return (number / 1e6).toFixed(2) + " M";
  if (number >= 1e4) return (number / 1e3).toFixed(1) + " k";
  return number >= 100 || Number.isInteger(number) ? number.toFixed(0) : number.toFixed(1);
}

function bytes(number) {
  for (const [unit, size] of [["GB", 2 ** 30], ["MB", 2 ** 20], ["kB", 2 ** 10]]) {
    if (number >= size) return (number / size).toFixed(1) + " " + unit;
  }
  return number + " B";
}

function duration(ns) {
  if (ns === null) return "–";
  if (ns >= 1e9) return (ns / 1e9).toFixed(2) + " s";
  if (ns >= 1e6) return (ns / 1e6).toFixed(2) + " ms";
  return (ns / 1e3).toFixed(0) + " µs";
}

function share(part, whole) {
  return whole > 0 ? ((100 * part) / whole).toFixed(1) + " %" : "–";
}

// What happened between two looks. A restart, or CONFIG RESETSTAT, makes numbers smaller: then nobody knows.
function rates(now) {
  const none = { commands: null, latency: null, commits: null, restarts: null, byName: new Map() };
  if (!before || !now.server || !before.server) return none;
  // By the server's clock: a browser looks late, or not at all, while it is busy or hidden.
  const seconds = (now.uptime_ms - before.uptime_ms) / 1000;
  if (seconds <= 0) return none;
  const [new_, old] = [now.server.grows, before.server.grows];
  const per = (name) => (new_[name] >= old[name] ? (new_[name] - old[name]) / seconds : null);
  const oldCommands = new Map(before.server.commands.map((command) => [command.name, command]));
  const byName = new Map();
  let [calls, ns] = [0, 0];
  for (const command of now.server.commands) {
    const was = oldCommands.get(command.name) || { calls: 0, ns: 0 };
    const [more, took] = [command.calls - was.calls, command.ns - was.ns];
    if (more < 0 || took < 0) continue;
    byName.set(command.name, { rate: more / seconds, mean: more > 0 ? took / more : null });
    calls += more;
    ns += took;
  }
  return {
    commands: per("commands"), commits: per("committed"), restarts: per("restarts"),
    latency: calls > 0 ? ns / calls : null, byName,
  };
}

function terms(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
}

function rows(table, all, empty) {
  const body = table.tBodies[0];
  if (all.length === 0) {
    const row = element("tr");
    row.append(element("td", empty, { colspan: table.tHead.rows[0].cells.length }));
    return body.replaceChildren(row);
  }
  body.replaceChildren(...all.map((cells) => {
    const row = element("tr");
    row.append(...cells.map(([text, kind]) => element("td", text, kind ? { class: kind } : {})));
    return row;
  }));
}

function drawCharts() {
  const charts = byId("charts");
  for (const [name, title, pick, form] of CHARTS) {
    let figure = byId("chart-" + name);
    if (!figure) {
      figure = element("figure", undefined, { id: "chart-" + name });
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", `0 0 ${POINTS - 1} 100`);
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("role", "img");
      svg.append(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
      figure.append(element("figcaption"), svg);
      charts.append(figure);
    }
    const values = history.map(pick);
    const known = values.filter((value) => value !== null);
    const most = Math.max(...known, 0);
    const last = known.length ? known[known.length - 1] : null;
    const text = `${title}: ${form(last)} now, at most ${form(most)} in ${history.length} s`;
    figure.querySelector("figcaption").textContent = text;
    const svg = figure.querySelector("svg");
    svg.setAttribute("aria-label", text);
    const points = values.map((value, index) => {
      const x = POINTS - values.length + index;
      return `${x},${value === null || most === 0 ? 98 : 98 - (94 * value) / most}`;
    });
    svg.querySelector("polyline").setAttribute("points", points.join(" "));
  }
}

function showCluster(status) {
  byId("cluster").hidden = !status;
  if (!status) return;
  byId("cluster-name").textContent =
    `${status.cluster}: map version ${status.map_version}, executed up to epoch ${status.epoch}`;
  const names = new Map(status.nodes.map((node) => [node.id, node.name]));
  const name = (id) => names.get(id) || `node ${id}`;
  const zones = new Map();
  for (const node of status.nodes) {
    if (!zones.has(node.zone)) zones.set(node.zone, []);
    zones.get(node.zone).push(node);
  }
  byId("zones").replaceChildren(...[...zones].map(([zone, nodes]) => {
    const box = element("div", undefined, { class: "zone" });
    box.append(element("h3", `Zone ${zone}`));
    for (const node of nodes) {
      const leads = status.partitions.filter((partition) => partition.leader === node.id);
      const keeps = status.partitions.filter((partition) =>
        partition.replicas.some((replica) => replica.node === node.id));
      const is_there = node.reachable && !node.out;
      const line = element("div", undefined, { class: is_there ? "node" : "node away" });
      const state = node.out ? "takes no part" : node.waiting ? "waits to join"
        : node.leaving ? "leaves" : is_there ? "" : "not heard of";
      line.append(
        element("strong", node.id === status.me ? `${node.name} (this one)` : node.name),
        element("div", [state, `leads ${leads.length}, keeps ${keeps.length} of ${status.partitions.length}`]
          .filter(Boolean).join("; ")),
        element("small", node.client_address),
      );
      box.append(line);
    }
    return box;
  }));
  const replica = (found) => name(found.node)
    + (found.role === "leader" || found.role === "follower" ? "" : ` (${found.role})`)
    + (found.lag ? ` (${found.lag} behind)` : "");
  rows(byId("partitions"), status.partitions.map((partition) => [
    [partition.id],
    [partition.leader === null ? "not known" : name(partition.leader)],
    [partition.term || "–"],
    [partition.replicas.map(replica).join(", ")],
    [partition.slots.map(([first, last]) => `${first}–${last}`).join(" ")],
  ]), "none");
}

function showHierarchy(status) {
  byId("hierarchy").hidden = !status;
  if (!status) return;
  byId("hierarchy-name").textContent = `${status.cluster}: control by ${status.control}`;
  const names = new Map(status.nodes.map((node) => [node.id, node.name]));
  const name = (id) => names.get(id) || `node ${id}`;
  rows(byId("validators"), [...status.validators].reverse().map((validator) => [
    [validator.name], [validator.height],
    [validator.leader === null ? "not known" : name(validator.leader)],
    [validator.hosts.map(name).join(", ")],
    [count(validator.decided_per_s), "number"], [count(validator.decided), "number"],
  ]), "none");
}

function showProblems(problems) {
  byId("problems").hidden = problems.length === 0;
  const all = problems.map((problem) => {
    const item = element("li", undefined, { "data-severity": problem.severity });
    item.append(element("b", problem.severity + ": "), problem.cause, element("br"), element("small", problem.next));
    return item;
  });
  // Only what changes is read aloud and moves the reader's place.
  const list = byId("problem-list");
  if (JSON.stringify(problems) !== list.dataset.shown) {
    list.dataset.shown = JSON.stringify(problems);
    list.replaceChildren(...all);
  }
}

const CAUSES = {
  waited: "The later one waits",
  overwritten: "The later one had read what the earlier one then wrote",
  withdrawn: "The later one had read what the earlier one took back",
  preempted: "The later one had the key first, and gives it up",
  cleared: "The database was cleared",
  elsewhere: "At another partition",
  unknown: "Not known",
};

function showConflicts({ conflicts, causes, grows }) {
  const restarts = Object.entries(causes).filter(([cause]) => cause !== "waited");
  const all = restarts.reduce((sum, [, times]) => sum + times, 0);
  const shares = restarts.filter(([, times]) => times > 0)
    .map(([cause, times]) => `${cause} ${share(times, all)}`);
  const why = shares.length > 0 ? "; of a sample: " + shares.join(", ") : "";
  byId("causes").textContent = `${count(grows.restarts)} executions were thrown away since the start${why}.`;
  rows(byId("conflicts"), conflicts.map((conflict) => [
    [conflict.key, "words"], [CAUSES[conflict.cause]], [conflict.by || "–"], [conflict.of],
    [count(conflict.count), "number"],
  ]), "none lately");
}

function showVerdict(verdict, text) {
  const shown = byId("verdict");
  if (shown.textContent !== text) shown.textContent = text;
  shown.dataset.verdict = verdict;
}

function show(now) {
  const words = { ok: "OK", degraded: "Degraded", unavailable: "Unavailable" };
  showVerdict(now.verdict, now.server ? words[now.verdict] : "Loading its data");
  const whole = now.cluster || now.hierarchy;
  const me = whole && whole.nodes.find((node) => node.id === whole.me);
  byId("who").textContent = `${me ? me.name + ", " : ""}version ${now.version}`;
  document.title = `${now.verdict === "ok" ? "" : "! "}Ordo${me ? " " + me.name : ""}`;
  showProblems(now.problems);
  showCluster(now.cluster);
  showHierarchy(now.hierarchy);
  if (!now.server) return;
  const { server } = now;
  const rate = rates(now);
  history.push(rate);
  if (history.length > POINTS) history.shift();
  const grows = server.grows;
  const numbers = [
    ["Commands a second", count(rate.commands)],
    ["Mean latency", duration(rate.latency)],
    ["Commits a second", count(rate.commits)],
    ["Keys", count(server.keys)],
    ["With a time to live", count(server.keys_that_expire)],
    ["Clients", count(server.clients)],
    ["Waiting for a key", count(server.clients_blocked)],
    ["Reads that found the key", share(grows.hits, grows.hits + grows.misses)],
    ["Evicted", count(grows.evicted)],
    ["Expired", count(grows.expired)],
    ["Errors", count(grows.errors)],
    ["Engine", server.engine],
    ["appendfsync", server.appendfsync],
    ["Mean sync of the log", grows.log_syncs ? duration((1e9 * grows.log_syncs_s) / grows.log_syncs) : "–"],
    ["Up for", now.uptime_ms < 3.6e6 ? `${Math.floor(now.uptime_ms / 6e4)} min` : `${(now.uptime_ms / 3.6e6).toFixed(1)} h`],
  ];
  if (server.staleness_ms !== null) numbers.push(["Behind the others", `${server.staleness_ms} ms`]);
  terms(byId("numbers"), numbers);
  drawCharts();
  rows(byId("commands"), server.commands.map((command) => {
    const now_ = rate.byName.get(command.name) || { rate: null, mean: null };
    return [
      [command.name], [count(now_.rate), "number"], [duration(now_.mean), "number"],
      [duration(command.p50_ns), "number"], [duration(command.p99_ns), "number"], [count(command.failed), "number"],
    ];
  }), "none yet");
  rows(byId("slow"), server.slow.map((slow) => [
    [new Date(1000 * slow.at_s).toLocaleTimeString()], [duration(1000 * slow.us), "number"],
    [slow.words, "words"], [slow.client],
  ]), "none");
  showConflicts(server);
  const { memory } = server;
  terms(byId("memory"), [
    ["Data", bytes(memory.data)],
    ["Connections", bytes(memory.connections)],
    ["The server itself", bytes(memory.startup)],
    ["Given by the system", bytes(memory.resident)],
    ["maxmemory", memory.limit ? `${bytes(memory.limit)}, ${share(memory.used, memory.limit)} used` : "none"],
    ["Log behind the checkpoint", bytes(memory.log_since_checkpoint)],
    ["Last checkpoint", bytes(memory.last_checkpoint)],
  ]);
}

async function look() {
  const token = sessionStorage.getItem("token");
  try {
    const reply = await fetch("console.json", {
      headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store", signal: AbortSignal.timeout(5000),
    });
    byId("ask").hidden = reply.status !== 401;
    if (reply.status === 401) return showVerdict("silent", "A token is needed");
    if (!reply.ok) return showVerdict("silent", `The server says ${reply.status}`);
    const now = await reply.json();
    show(now);
    before = now;
  } catch {
    before = null;
    showVerdict("silent", "The server does not answer");
  }
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value);
  look();
});
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  before = null;
});
setInterval(() => { if (!paused && !document.hidden) look(); }, EVERY_MS);
look();
