// What is shown above the tables: tiles, charts, links. `view` is the last overview, `points` the history.

const ROUTES = ["local", "offload", "fallback", "none"];
const STATE_KIND = { open: "good", opening: "warn", closing: "warn", closed: "bad" };

function sum(values) {
  return values.reduce((a, b) => a + b, 0);
}

function tile(name, value, more) {
  return [el("dt", {}, name), el("dd", {}, more ? [value, el("small", {}, more)] : value)];
}

function drawTiles(view) {
  const rates = view.requests.per_s;
  const total = sum(Object.values(rates));
  const away = (rates.offload || 0) / (total || 1);
  const pairs = [
    tile("Requests", number(total, 2) + "/s", number(view.requests.total, 0) + " since the start"),
    tile("Offloaded", total ? percent(away) : "–", "of the last minute"),
    tile("Being served", number(view.in_flight, 0)),
    tile("TTFT, median", seconds(view.ttft.p50_s), `${view.ttft.count} streams`),
    tile("TTFT, 99th percentile", seconds(view.ttft.p99_s), "last minute"),
    tile("Failed", number(view.requests.errors_per_s, 2) + "/s", "status 500 or more"),
    tile("Threshold", tokens(view.threshold_tokens), "uncached tokens"),
    tile("Plan", view.plan.version ? "version " + view.plan.version : "none", planNote(view.plan)),
  ];
  fill("tiles", pairs.map((pair) => el("div", {}, pair)));
}

function planNote(plan) {
  const lead = plan.is_leader ? "this gateway leads" : plan.leader ? "leader " + plan.leader : "no leader";
  return plan.pinned ? lead + ", pinned" : lead;
}

function planLine(view) {
  const plan = view.plan;
  const said = plan.version ? `Plan ${plan.version} by ${plan.by || "?"} at ${clock(plan.at_s)}: ${plan.why}.` : "No plan yet: the configured threshold holds.";
  const full = plan.bottleneck ? ` Fullest stage: ${plan.bottleneck}.` : "";
  return said + full + (plan.problem ? ` No re-planning: ${plan.problem}.` : "");
}

function remotes(points) {
  return [...new Set(points.flatMap((point) => Object.keys(point.links)))].sort();
}

function ofLink(points, region, name) {
  return points.map((point) => (point.links[region] ? point.links[region][name] : null));
}

function drawCharts(view, points) {
  const times = points.map((point) => point.at_s);
  const away = remotes(points);
  setText("plan", planLine(view));
  drawChart({
    id: "chart-threshold", title: "Threshold over time", unit: tokens, isStep: true,
    closed: points.map((point) => Object.values(point.links).some((link) => link.closed)),
    series: [
      { name: "of the plan", values: points.map((point) => point.threshold_tokens) },
      ...away.map((region) => ({ name: "over the link from " + region, values: ofLink(points, region, "threshold_tokens") })),
    ],
  }, times);
  drawChart({
    id: "chart-requests", title: "Requests per second by route", unit: (value) => number(value, 2),
    series: ROUTES.map((route) => ({ name: route, values: points.map((point) => point.per_s[route] || 0) })),
  }, times);
  drawChart({
    id: "chart-ttft", title: "Time to first token", unit: seconds,
    series: [
      { name: "median", values: points.map((point) => point.ttft_p50_s) },
      { name: "99th percentile", values: points.map((point) => point.ttft_p99_s) },
    ],
  }, times);
  const regions = [...new Set(points.flatMap((point) => Object.keys(point.backlog_tokens)))].sort();
  drawChart({
    id: "chart-queues", title: "Backlog in tokens by region", unit: tokens, least: 10,
    series: regions.map((region) => ({ name: region, values: points.map((point) => point.backlog_tokens[region] || 0) })),
  }, times);
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value]) => el("div", {}, [el("dt", {}, name), el("dd", {}, value)])));
}

function linkNote(link) {
  if (link.is_stale) return isNumber(link.age_s) ? `Its nodes told nothing for ${seconds(link.age_s)}.` : "Nothing is known of it yet.";
  if (link.state === "closed") return "Nothing is offloaded over it: an outage, or a surge of loss.";
  if (link.state === "closing") return `It fills up: only prompts above ${number(link.threshold_factor, 2)} times the threshold are offloaded.`;
  if (link.state === "opening") return `It recovers: only prompts above ${number(link.threshold_factor, 2)} times the threshold are offloaded.`;
  return "Prompts above the threshold are offloaded over it.";
}

function linkCard(link, order) {
  const kind = link.is_stale && link.state === "open" ? "warn" : STATE_KIND[link.state] || "warn";
  const badges = [pill(link.state, kind)];
  if (link.is_stale) badges.push(pill("stale", "warn"));
  if (link.up === false) badges.push(pill("down", "bad"));
  return el("div", { class: "card" }, [
    el("h3", {}, [`${link.from} → ${link.to}`, ...badges]),
    el("p", { class: "quiet" }, linkNote(link)),
    facts([
      ["Delivers", rate(link.delivery_bytes_per_s)],
      ["Seen to carry", rate(link.available_bytes_per_s)],
      ["Used", percent(link.utilisation)],
      ["Round trip", seconds(link.rtt_s)],
      ["Sent again", percent(link.loss)],
      ["Backlog", bytes(link.backlog_bytes) + ", " + seconds(link.backlog_s)],
      ["Bandwidth", link.mode],
      ["Offloads above", link.threshold_tokens === null ? "none" : tokens(link.threshold_tokens)],
    ]),
    el("div", { id: "chart-link-" + order, class: "chart" }),
  ]);
}

function drawLinks(view, points) {
  if (!view.links.length) {
    fill("links", el("p", { class: "quiet" }, "No other region has a prefill node."));
    return;
  }
  fill("links", view.links.map(linkCard));
  const times = points.map((point) => point.at_s);
  view.links.forEach((link, order) => {
    drawChart({
      id: "chart-link-" + order, title: `Rate of the link from ${link.from}`, unit: rate,
      closed: points.map((point) => point.links[link.from] && point.links[link.from].closed),
      series: [
        { name: "delivers", values: ofLink(points, link.from, "delivery_bytes_per_s") },
        { name: "seen to carry", values: ofLink(points, link.from, "available_bytes_per_s") },
      ],
    }, times);
  });
}
