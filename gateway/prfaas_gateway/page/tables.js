// The tables: reasons, regions with their nodes, decisions. On a phone each row becomes a card with the columns' names.

const WHY = {
  below_threshold: "short enough to be prefilled here",
  above_threshold: "longer than the threshold: prefilled in the other region",
  link_congested: "the link fills up: kept here though above the threshold",
  link_closed: "the link is closed: kept here",
  no_remote_prefill: "no other region has a prefill node that can take it",
  no_local_prefill: "no prefill node here can take it",
  offload_failed: "the offload failed: taken home",
  local_failed: "failed at one node here, tried at another",
  no_prefill: "no prefill node can take it",
  no_decode: "no decode node can take it",
  invalid_request: "the request is not valid",
  body_too_large: "the request's body is too large",
  model_not_found: "no node serves that model",
  overloaded: "too many requests are being served",
  fallback_budget: "too many prompts wait here already to take more of them home",
  residency: "it must stay in a place where no node can take it",
  not_ready: "something it needs is not ready",
  invalid_api_key: "it came with no key, or one that is not known",
  not_allowed: "its key is not for this",
  rate_limit_exceeded: "its key has had as much as it may",
  request_timeout: "its client was too slow to send it",
  decode_lost: "its decode node went away",
  client_gone: "the client went away",
  deadline_exceeded: "it took longer than allowed",
  internal_error: "an error of the gateway itself",
};
const HEALTH = {
  serving: ["serving", "good"], slow_start: ["slow start", "warn"],
  draining: ["draining", "warn"], quarantined: ["left alone", "bad"],
};

// A column is [name, class]: num to the right; on a phone bare without its name, whole on a line of its own.
function table(label, columns, rows, look) {
  const head = el("tr", {}, columns.map(([name, kind]) => el("th", { scope: "col", class: kind || null }, name)));
  const body = rows.map((cells) => el("tr", {}, cells.map((cell, order) => {
    const [name, kind] = columns[order];
    return el("td", { class: kind || null, "data-name": name }, el("span", {}, cell));
  })));
  return el("table", { "aria-label": label, class: look }, [el("thead", {}, head), el("tbody", {}, body)]);
}

function reason(word) {
  return [el("code", {}, word), el("span", { class: "why" }, WHY[word] || "")];
}

function drawReasons(view) {
  const ended = view.requests.ended;
  if (!ended.length) {
    fill("reasons", el("p", { class: "quiet" }, "No request ended in the last minute."));
    return;
  }
  const total = sum(ended.map((one) => one.count));
  fill("reasons", table("Reasons of the last minute", [["Route", "bare"], ["Reason", "bare whole"], ["Status", "num"], ["Requests", "num"], ["Share", "bare"]], ended.slice(0, 12).map((one) => [
    one.route, reason(one.reason), one.code, number(one.count, 0),
    el("progress", { max: total, value: one.count, "aria-label": percent(one.count / total) }),
  ])));
}

function nodeRow(node) {
  const [word, kind] = HEALTH[node.health] || [node.health, "warn"];
  return [
    node.name, node.role, pill(word, kind), percent(node.share),
    number(node.in_flight, 0), tokens(node.backlog_tokens),
    isNumber(node.signals_age_s) ? seconds(node.signals_age_s) + " ago" : "–",
  ];
}

const NODE_COLUMNS = [["Node", "bare"], ["Role", "bare"], ["Health", "bare"], ["Share", "num"], ["Legs", "num"], ["Backlog", "num"], ["Told", "num"]];

function drawRegions(view) {
  fill("regions", view.regions.map((region) => {
    const speed = isNumber(region.tokens_per_s) ? `, ${tokens(region.tokens_per_s)} tokens/s per prefill node` : "";
    const hidden = region.num_nodes - region.nodes.length;
    const note = `${number(region.num_nodes, 0)} ${region.num_nodes === 1 ? "node" : "nodes"}, ${number(region.in_flight, 0)} legs, ${tokens(region.backlog_tokens)} tokens wait${speed}`;
    return el("div", { class: "region" }, [
      el("h3", {}, [region.name, ...(region.is_own ? [pill("decodes here", "good")] : [])]),
      el("p", { class: "quiet" }, note + (hidden ? `; ${hidden} not listed` : "")),
      table("Nodes of " + region.name, NODE_COLUMNS, region.nodes.map(nodeRow), "even"),
    ]);
  }));
}

function decisionRow(noted) {
  const limits = Object.entries(noted.effective_tokens).map(([region, limit]) => `${region}: ${limit === null ? "closed" : tokens(limit)}`);
  return [
    clock(noted.at_s),
    [el("code", {}, noted.request_id.slice(0, 24)), noted.attempt > 1 ? ` attempt ${noted.attempt}` : ""].filter(Boolean),
    noted.route, reason(noted.reason),
    noted.prefix_tokens ? `${tokens(noted.prompt_tokens)} (${tokens(noted.prefix_tokens)} cached)` : tokens(noted.prompt_tokens),
    limits.length ? limits.join(", ") : tokens(noted.threshold_tokens),
    noted.prefill ? `${noted.prefill} → ${noted.decode}` : "–",
  ];
}

function drawDecisions(view) {
  if (!view.decisions.length) {
    fill("decisions", el("p", { class: "quiet" }, "No request yet."));
    return;
  }
  fill("decisions", table("Last decisions", [["Time", "bare"], ["Request", "bare"], ["Route", "bare"], ["Reason", "bare whole"], ["Tokens", "num"], ["Offloads above", "num"], ["Prefill → decode", "bare"]],
    view.decisions.map(decisionRow)));
}
