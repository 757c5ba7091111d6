// Lines over the last quarter of an hour. A chart is {id, title, unit, series: [{name, values}], closed}.

const SPAN_S = 900;
const LEFT = 62;
const BOTTOM = 20;
const TOP = 8;
const HEIGHT = 160;
const GAP_S = 7; // without a sample for longer, a line is broken

function niceMax(most) {
  if (!(most > 0)) return 1;
  const step = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * step).find((value) => value >= most * 1.0001);
}

function frame(chart, times) {
  const width = Math.max(byId(chart.id).clientWidth, 200);
  const end = times.length ? times[times.length - 1] : 0;
  const span = Math.min(SPAN_S, Math.max(120, times.length ? end - times[0] : 0));
  const all = chart.series.flatMap((one) => one.values).filter(isNumber);
  const most = niceMax(all.reduce((a, b) => Math.max(a, b), chart.least || 0));
  return {
    width, end, span, most,
    x: (at) => LEFT + ((at - (end - span)) / span) * (width - LEFT - 6),
    y: (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP),
  };
}

function path(times, values, area, isStep) {
  let d = "";
  let last = null;
  times.forEach((at, index) => {
    const value = values[index];
    if (!isNumber(value) || at < area.end - area.span) {
      last = null;
      return;
    }
    const [x, y] = [area.x(at).toFixed(1), area.y(value).toFixed(1)];
    if (last === null || at - last > GAP_S) d += `M${x} ${y}h.1`;
    else d += isStep ? `H${x}V${y}` : `L${x} ${y}`;
    last = at;
  });
  return d;
}

function axes(chart, area) {
  const lines = [0, 0.5, 1].flatMap((share) => {
    const y = area.y(share * area.most);
    return [
      svg("line", { class: "grid", x1: LEFT, x2: area.width - 6, y1: y, y2: y }),
      svg("text", { class: "axis", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, chart.unit(share * area.most)),
    ];
  });
  const ago = area.span >= 180 ? Math.round(area.span / 60) + " min ago" : Math.round(area.span) + " s ago";
  return [
    ...lines,
    svg("text", { class: "axis", x: LEFT, y: HEIGHT - 5 }, ago),
    svg("text", { class: "axis", x: area.width - 6, y: HEIGHT - 5, "text-anchor": "end" }, "now"),
  ];
}

function bands(times, closed, area) {
  return times.flatMap((at, index) => {
    const before = index ? Math.max(times[index - 1], area.end - area.span) : at;
    if (!closed || !closed[index] || at - before > GAP_S || at < before) return [];
    const x = area.x(before);
    return [svg("rect", { class: "closed", x, y: TOP, width: Math.max(area.x(at) - x, 1), height: HEIGHT - BOTTOM - TOP })];
  });
}

function legend(chart, index) {
  const shade = (chart.closed || []).some(Boolean) ? [el("li", {}, [el("span", { class: "closed" }), "link closed"])] : [];
  return el("ul", { class: "legend" }, chart.series.map((one, order) => {
    const line = svg("line", { class: `plot s${order % 6} d${order % 6}`, x1: 0, x2: 26, y1: 5, y2: 5 });
    const mark = svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, line);
    return el("li", {}, [mark, one.name + ": " + chart.unit(one.values[index])]);
  }).concat(shade));
}

const cursors = {}; // by chart: where the pointer is, as a share of the width

function drawChart(chart, times) {
  const box = byId(chart.id);
  const area = frame(chart, times);
  let shown = times.length - 1;
  if (cursors[chart.id] !== undefined && times.length) {
    const at = area.end - area.span + ((cursors[chart.id] * area.width - LEFT) / (area.width - LEFT - 6)) * area.span;
    shown = times.reduce((best, time, index) => (Math.abs(time - at) < Math.abs(times[best] - at) ? index : best), 0);
  }
  const told = chart.series.map((one) => `${one.name} ${chart.unit(one.values[times.length - 1])}`).join(", ");
  const label = `${chart.title}: ${told || "nothing yet"}`;
  const parts = [
    ...bands(times, chart.closed, area),
    ...axes(chart, area),
    ...chart.series.map((one, order) =>
      svg("path", { class: `plot s${order % 6} d${order % 6}`, d: path(times, one.values, area, chart.isStep) })),
  ];
  if (cursors[chart.id] !== undefined && times.length) {
    const x = area.x(times[shown]);
    parts.push(svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    parts.push(svg("text", { class: "axis", x: area.width / 2, y: HEIGHT - 5, "text-anchor": "middle" }, clock(times[shown])));
  }
  const picture = svg("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${area.width} ${HEIGHT}` }, parts);
  picture.addEventListener("pointermove", (event) => {
    const edges = picture.getBoundingClientRect();
    cursors[chart.id] = (event.clientX - edges.left) / edges.width;
    drawChart(chart, times);
  });
  picture.addEventListener("pointerleave", () => {
    delete cursors[chart.id];
    drawChart(chart, times);
  });
  box.replaceChildren(picture, legend(chart, shown));
}
