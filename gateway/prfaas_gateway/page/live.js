// Asks the gateway again and again, and says so when it does not answer or what it knows is old.

const EVERY_MS = 2000;
const GIVE_UP_MS = 5000;
const KEEP_S = 900;
const KEY = "prfaas-key";

let points = [];
let view = null;
let heardMs = 0;
let lastGateway = "";

function storedKey() {
  try {
    return sessionStorage.getItem(KEY) || "";
  } catch {
    return ""; // storage may be forbidden
  }
}

function notice(text) {
  byId("notice").hidden = !text;
  setText("notice", text);
}

function show(state, kind, isStale) {
  setText("state", state);
  document.title = `${view ? view.deployment : "PrfaaS"}: ${state}`;
  byId("state").className = "pill " + kind;
  document.body.classList.toggle("stale", isStale);
}

async function ask() {
  const since = points.length ? points[points.length - 1].at_s : 0;
  const key = storedKey();
  const headers = key ? { Authorization: "Bearer " + key } : {};
  const answer = await fetch(`/admin/v1/overview?decisions=20&since=${since}`, { headers, cache: "no-store", signal: AbortSignal.timeout(GIVE_UP_MS) });
  if (answer.status === 401 || answer.status === 403) {
    byId("ask").hidden = false;
    throw new Error(key ? "the key is refused" : "a key is needed");
  }
  if (!answer.ok) throw new Error("HTTP status " + answer.status);
  byId("ask").hidden = true;
  return answer.json();
}

function take(found) {
  if (found.gateway !== lastGateway) points = found.history;
  else points = points.concat(found.history.filter((point) => !points.length || point.at_s > points[points.length - 1].at_s));
  lastGateway = found.gateway;
  points = points.filter((point) => point.at_s > found.at_s - KEEP_S);
  view = found;
  heardMs = Date.now();
}

function draw() {
  if (!view) return;
  setText("deployment", view.deployment);
  setText("where", `gateway ${view.gateway} in region ${view.region}, ${clock(view.at_s)}`);
  drawTiles(view);
  drawCharts(view, points);
  drawLinks(view, points);
  drawReasons(view);
  drawRegions(view);
  drawDecisions(view);
}

function tell(problem) {
  if (problem) {
    const since = heardMs ? ` What is shown is ${Math.round((Date.now() - heardMs) / 1000)} s old.` : "";
    show("stale: no answer", "bad", Boolean(heardMs));
    notice(`The gateway does not answer: ${problem}.${since}`);
  } else if (view.etcd.stale) {
    show("stale: etcd away", "warn", false);
    notice(`etcd does not answer${isNumber(view.etcd.age_s) ? " since " + seconds(view.etcd.age_s) : ""}: nodes, plan and policy are as last known; requests are still served.`);
  } else if (view.missing.length) {
    show("not ready", "bad", false);
    notice("Missing: " + view.missing.join(", ") + ".");
  } else {
    show("live", "good", false);
    notice("");
  }
}

async function once() {
  let problem = "";
  try {
    take(await ask());
  } catch (error) {
    problem = error.name === "TimeoutError" ? "no answer in time" : error.message;
  }
  tell(problem);
  if (!problem) draw();
}

async function live() {
  for (;;) {
    if (!document.hidden) await once();
    await new Promise((wake) => setTimeout(wake, EVERY_MS));
  }
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  try {
    sessionStorage.setItem(KEY, byId("key").value.trim());
  } catch {
    notice("This browser keeps no key.");
  }
  byId("key").value = "";
  once();
});
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => { if (!document.hidden) once(); });
live();
