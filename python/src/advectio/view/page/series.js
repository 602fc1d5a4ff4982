// Time series of points: lines over model time (or frame numbers), and what lies under the mouse.

import { POINT_COLOURS } from "./map.js";
import { text, ticks, tickTexts } from "./numbers.js";

const SVG = "http://www.w3.org/2000/svg";
const DAY = 86400e3;
const STEPS = [1e3, 5e3, 15e3, 30e3, 60e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 3 * 3600e3, 6 * 3600e3, 12 * 3600e3, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];

function element(name, attributes, parent, content) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (content !== undefined) made.textContent = content;
  parent?.append(made);
  return made;
}

/** points: [{ x, y, values: [[frame, ms, label, value], …] }] */
export function drawSeries(svg, points, units) {
  svg.replaceChildren();
  const { width, height } = svg.getBoundingClientRect();
  const all = points.flatMap((p) => p.values).filter((v) => v[3] !== null);
  if (!all.length || width < 80) return;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const timed = all.every((v) => v[1] !== null);
  const time = (v) => (timed ? v[1] : v[0]);
  let [t0, t1] = [Math.min(...all.map(time)), Math.max(...all.map(time))];
  let [low, high] = [Math.min(...all.map((v) => v[3])), Math.max(...all.map((v) => v[3]))];
  const flat = high === low;
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.01 || 1;
  [low, high] = [low - pad, high + pad];
  if (t0 === t1) [t0, t1] = timed ? [t0 - 60e3, t1 + 60e3] : [t0 - 1, t1 + 1];

  const marks = ticks(low, high, Math.max(2, Math.floor((height - 50) / 26)));
  const labels = tickTexts(marks);
  const left = 16 + 7 * Math.max(...labels.map((l) => l.length));
  const [right, top, bottom] = [width - 14, 20, height - 24];
  const px = (t) => left + ((t - t0) / (t1 - t0)) * (right - left);
  const py = (v) => bottom - ((v - low) / (high - low)) * (bottom - top);
  element("text", { x: left, y: 12, class: "axis" }, svg, units || "");
  marks.forEach((mark, i) => {
    element("line", { x1: left, x2: right, y1: py(mark), y2: py(mark), class: "grid" }, svg);
    element("text", { x: left - 6, y: py(mark) + 4, class: "axis", "text-anchor": "end" }, svg, labels[i]);
  });
  const count = Math.max(2, Math.floor((right - left) / 110));
  const times = timed ? timeTicks(t0, t1, count) : ticks(t0, t1, count).filter(Number.isInteger).map((t) => [t, `frame ${t}`]);
  for (const [t, label] of times) {
    element("line", { x1: px(t), x2: px(t), y1: bottom, y2: bottom + 4, class: "tick" }, svg);
    const half = label.length * 3.5;
    const x = Math.max(half, Math.min(width - half - 2, px(t)));
    element("text", { x, y: bottom + 17, class: "axis", "text-anchor": "middle" }, svg, label);
  }
  element("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "tick" }, svg);
  points.forEach((point, k) => {
    const colour = POINT_COLOURS[k % POINT_COLOURS.length];
    let path = "";
    let pen = "M";
    for (const v of point.values) {
      if (v[3] === null) pen = "M";
      else {
        path += `${pen}${px(time(v)).toFixed(1)} ${py(v[3]).toFixed(1)}`;
        pen = "L";
      }
    }
    element("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round" }, svg);
    if (point.values.length <= 60) {
      for (const v of point.values) if (v[3] !== null) element("circle", { cx: px(time(v)), cy: py(v[3]), r: 3, fill: colour }, svg);
    }
  });
  hover(svg, points, { px, time, left, right, top, bottom, flat });
}

/** points: [{ profile: [value, …] }], one value a level, drawn upwards as the levels lie. */
export function drawProfile(svg, points, units, level) {
  svg.replaceChildren();
  svg.onpointermove = svg.onpointerleave = null;
  const { width, height } = svg.getBoundingClientRect();
  const all = points.flatMap((p) => p.profile ?? []).filter((v) => v !== null);
  if (!all.length || width < 80) return;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  let [low, high] = [Math.min(...all), Math.max(...all)];
  const pad = (high - low) * 0.05 || Math.abs(high) * 0.01 || 1;
  [low, high] = [low - pad, high + pad];
  const heights = level.values ?? Array.from({ length: level.size }, (_, k) => k);
  const [first, last] = [heights[0], heights.at(-1)];
  // The level that lies highest is drawn at the top.
  const [bottomValue, topValue] = level.down ? [last, first] : [first, last];
  const marks = ticks(Math.min(first, last), Math.max(first, last), Math.max(2, Math.floor((height - 50) / 30)));
  const labels = tickTexts(marks);
  const left = 16 + 7 * Math.max(...labels.map((l) => l.length));
  const [right, top, bottom] = [width - 14, 20, height - 24];
  const px = (v) => left + ((v - low) / (high - low)) * (right - left);
  const py = (h) => bottom - ((h - bottomValue) / (topValue - bottomValue || 1)) * (bottom - top);
  element("text", { x: left, y: 12, class: "axis" }, svg, `${level.title ?? level.name}${level.units ? ` (${level.units})` : ""}`);
  marks.forEach((mark, i) => {
    element("line", { x1: left, x2: right, y1: py(mark), y2: py(mark), class: "grid" }, svg);
    element("text", { x: left - 6, y: py(mark) + 4, class: "axis", "text-anchor": "end" }, svg, labels[i]);
  });
  const below = ticks(low, high, Math.max(2, Math.floor((right - left) / 90)));
  tickTexts(below).forEach((label, i) => {
    element("line", { x1: px(below[i]), x2: px(below[i]), y1: bottom, y2: bottom + 4, class: "tick" }, svg);
    element("text", { x: px(below[i]), y: bottom + 17, class: "axis", "text-anchor": "middle" }, svg, label);
  });
  element("text", { x: right, y: 12, class: "axis", "text-anchor": "end" }, svg, units || "");
  element("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "tick" }, svg);
  points.forEach((point, k) => {
    const colour = POINT_COLOURS[k % POINT_COLOURS.length];
    let [path, pen] = ["", "M"];
    (point.profile ?? []).forEach((value, at) => {
      if (value === null) pen = "M";
      else [path, pen] = [`${path}${pen}${px(value).toFixed(1)} ${py(heights[at]).toFixed(1)}`, "L"];
    });
    element("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round" }, svg);
    (point.profile ?? []).forEach((value, at) => value !== null && element("circle", { cx: px(value), cy: py(heights[at]), r: 3, fill: colour }, svg));
  });
}

function hover(svg, points, { px, time, left, right, top, bottom }) {
  const line = element("line", { y1: top, y2: bottom, class: "cursor", visibility: "hidden" }, svg);
  const words = element("text", { y: 12, class: "axis strong", "text-anchor": "end", x: right }, svg);
  svg.onpointermove = (event) => {
    const x = event.offsetX;
    const longest = points.reduce((a, b) => (b.values.length > a.values.length ? b : a));
    if (x < left - 9 || !longest.values.length) return;
    const near = longest.values.reduce((a, b) => (Math.abs(px(time(b)) - x) < Math.abs(px(time(a)) - x) ? b : a));
    const values = points.map((p) => text(p.values.find((v) => v[0] === near[0])?.[3], 5));
    words.textContent = `${near[2]}:  ${values.join("  ·  ")}`;
    line.setAttribute("x1", px(time(near)));
    line.setAttribute("x2", px(time(near)));
    line.setAttribute("visibility", "visible");
  };
  svg.onpointerleave = () => {
    line.setAttribute("visibility", "hidden");
    words.textContent = "";
  };
}

function timeTicks(t0, t1, count) {
  const step = STEPS.find((s) => (t1 - t0) / s <= count) ?? Math.ceil((t1 - t0) / count / (365 * DAY)) * 365 * DAY;
  const found = [];
  for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step) {
    const iso = new Date(t).toISOString().replace(/^\+?0*(\d{4})/, "$1");
    const [date, clock] = iso.slice(0, step < 60e3 ? 19 : 16).split("T");
    found.push([t, step >= DAY ? date : found.length === 0 || clock === "00:00" ? `${date.slice(5)} ${clock}` : clock]);
  }
  return found;
}

export function csv(points, name, units) {
  const rows = new Map();
  points.forEach((p, k) => p.values.forEach((v) => {
    if (!rows.has(v[0])) rows.set(v[0], [v[0], v[2], ...points.map(() => "")]);
    rows.get(v[0])[2 + k] = v[3] ?? "";
  }));
  const head = ["frame", "time", ...points.map((p) => `"${name}${units ? ` [${units}]` : ""} x=${p.x} y=${p.y}"`)];
  return [head, ...[...rows.values()].sort((a, b) => a[0] - b[0])].map((row) => row.join(",")).join("\n") + "\n";
}
