// Elements and words. All text goes in as text nodes: nothing that came over the network is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  for (const child of [].concat(children === undefined ? [] : children)) {
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function el(name, attributes, children) {
  return put(document.createElement(name), attributes, children);
}

function svg(name, attributes, children) {
  return put(document.createElementNS(SVG, name), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

function fill(id, children) {
  byId(id).replaceChildren(...[].concat(children));
}

function setText(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function number(value, digits) {
  if (!isNumber(value)) return "–";
  const places = digits !== undefined ? digits : Math.abs(value) < 10 && value % 1 ? 2 : 0;
  return value.toLocaleString("en", { maximumFractionDigits: places });
}

function tokens(value) {
  if (!isNumber(value)) return "–";
  return value < 100000 ? number(value, 0) : number(value / 1000, 0) + " k";
}

function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 0.001) return number(value * 1e6, 0) + " µs";
  if (value < 1) return number(value * 1000, value < 0.1 ? 1 : 0) + " ms";
  return value < 100 ? number(value, 2) + " s" : number(value / 60, 0) + " min";
}

function scaled(value, units, base) {
  if (!isNumber(value)) return "–";
  let index = 0;
  while (value >= base && index < units.length - 1) {
    value /= base;
    index += 1;
  }
  return number(value, value < 10 && index ? 2 : value < 100 && index ? 1 : 0) + " " + units[index];
}

const rate = (bytesPerS) => scaled(isNumber(bytesPerS) ? bytesPerS * 8 : null, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"], 1000);
const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const percent = (value) => (isNumber(value) ? number(value * 100, value < 0.1 ? 2 : 0) + " %" : "–");

function clock(unixS) {
  return isNumber(unixS) ? new Date(unixS * 1000).toLocaleTimeString("en-GB") : "–";
}

function pill(text, kind) {
  return el("span", { class: "pill " + kind }, text);
}
