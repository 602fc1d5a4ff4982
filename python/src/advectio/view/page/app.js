// The dashboard: what the person has chosen (`chosen`), what the server has told (`told`), and the way between them.
//
// A plane is asked for when something that shows in it changes. One request is on its way at a time; what changes meanwhile
// leads to one more, for the newest frame. So a slow line or a slow browser leaves frames out and never falls behind.

import * as api from "./api.js";
import { drawColourBar } from "./colourbar.js";
import { MapView, POINT_COLOURS } from "./map.js";
import { bytes, counted, roundSteps, seconds, text } from "./numbers.js";
import { DIVERGING, forAllEyes, NAMES } from "./palettes.js";
import { csv, drawProfile, drawSeries } from "./series.js";
import { Table } from "./table.js";

const $ = (id) => document.getElementById(id);
const PLAY_MS = 250;
const POINTS_MAX = POINT_COLOURS.length;

const chosen = { stream: null, field: null, levels: {}, cut: "map", where: {}, frame: "latest", points: [], shown: "map" };
const told = { state: null, connected: false, info: null, plane: null, seenRange: {} };

// ---- messages ----

const messages = {};
/** One line at the top for each subject, until it is taken back with "". */
function message(subject, words) {
  messages[subject] = words;
  const all = Object.values(messages).filter(Boolean);
  $("message").textContent = all.join(" · ");
  $("message").hidden = !all.length;
}

/** What a request ends with: its failure in words, anything else is a mistake of ours and shows too. */
async function attempt(subject, work) {
  try {
    await work();
    message(subject, "");
  } catch (error) {
    message(subject, error.message);
    if (!(error instanceof api.Refused)) throw error;
  }
}

// ---- one request at a time, the newest wish wins ----

function oneAtATime(work) {
  let running = false;
  let again = false;
  return async () => {
    if (running) return void (again = true);
    running = true;
    try {
      do {
        again = false;
        await work();
      } while (again);
    } finally {
      running = false;
    }
  };
}

// ---- the map ----

const map = new MapView($("map"), {
  moved: () => askPlane(),
  over: underMouse,
  clicked: (x, y) => addPoint(x, y),
});
const fieldNow = () => told.info?.fields.find((f) => f.name === chosen.field);
const levelsOf = (field) => field.levels.map((level) => Math.min(level.size - 1, chosen.levels[level.name] ?? 0));

// A section is cut out of the levels that lie before rows and columns: those have no slider then, the place has one.
const cutOf = (field) => (chosen.cut in field.cuts ? chosen.cut : "map");
const upOf = (field) => field.levels.findLast((level) => level.size > 1);
const otherLevels = (field) => field.levels.filter((level) => cutOf(field) === "map" || level !== upOf(field));
/** Row of a section along a row, column of one along a column: the middle, where nobody has chosen. */
function whereOf(field) {
  const size = field.shape[cutOf(field) === "row" ? 0 : 1];
  return Math.min(size - 1, chosen.where[cutOf(field)] ?? Math.floor(size / 2));
}
function atOf(field) {
  const levels = levelsOf(field).filter((_, i) => otherLevels(field).includes(field.levels[i]));
  return cutOf(field) === "map" ? levels : [...levels, whereOf(field)];
}
function shapeOf(field) {
  const [ny, nx] = field.shape;
  return { map: [ny, nx], row: [upOf(field)?.size, nx], column: [upOf(field)?.size, ny] }[cutOf(field)];
}
const planeOf = (field) => ({ variable: field.name, cut: cutOf(field), at: atOf(field).join() });

const askPlane = oneAtATime(async () => {
  const field = fieldNow();
  if (!field || chosen.shown !== "map") return;
  map.setCells(shapeOf(field), field.cuts[cutOf(field)]);
  if (!map.canvas.width) return;
  const began = performance.now();
  await attempt("map", async () => {
    const asked = planeOf(field);
    const query = { ...asked, frame: chosen.frame, ...map.wanted(), pool: $("pool").value, bits: $("slow").checked ? 8 : 16 };
    const plane = await api.field(chosen.stream, query);
    if (plane.variable !== chosen.field || asked.cut !== cutOf(fieldNow())) return;
    const first = told.plane?.variable !== plane.variable;
    told.plane = plane;
    const key = rangeKey();
    const newLevel = !first && !(key in told.seenRange);
    const seen = told.seenRange[key] ?? [Infinity, -Infinity];
    if (plane.missing < plane.cells) told.seenRange[key] = [Math.min(seen[0], plane.low), Math.max(seen[1], plane.high)];
    if (first || newLevel) usualColours(plane, first);
    paint();
    told.plane.pixels_s = (performance.now() - began) / 1000;
    showAbout();
    if (mouse) askValue();
  });
});

/** Sections beside each other have one range. */
function rangeKey() {
  const field = fieldNow();
  const at = cutOf(field) === "map" ? atOf(field) : atOf(field).slice(0, -1);
  return `${chosen.stream}|${chosen.field}|${cutOf(field)}|${at.join()}`;
}

/** Diverging and symmetric where values lie on both sides of zero. A field that is so at one level stays so. */
function usualColours(plane, first) {
  if (usualColours.byHand) return;
  const { usual } = fieldNow();
  if (usual) {
    $("symmetric").checked = false;
    [$("palette").value, $("range").value] = [usual.palette, "usual"];
    return;
  }
  const both = plane.low < 0 && plane.high > 0 && Math.min(-plane.low, plane.high) > 0.2 * Math.max(-plane.low, plane.high);
  if (!first && !both) return;
  $("symmetric").checked = both;
  if (both !== DIVERGING.includes($("palette").value) || $("palette").value === "radar") $("palette").value = both ? DIVERGING[0] : remembered("palette", "viridis");
}

function range() {
  let [low, high] = [told.plane.low, told.plane.high];
  const hand = [$("low").value, $("high").value].map((t) => Number.parseFloat(t.replace("−", "-")));
  const kind = $("range").value;
  if (kind === "most" && told.plane.most[0] !== null) [low, high] = told.plane.most;
  const { usual } = fieldNow();
  if (kind === "usual" && usual) return { low: usual.low, high: usual.high };
  if (kind === "growing") [low, high] = told.seenRange[rangeKey()] ?? [low, high];
  if (kind === "hand" && hand.every(Number.isFinite) && hand[1] > hand[0]) [low, high] = hand;
  message("range", kind === "hand" && !(hand.every(Number.isFinite) && hand[1] > hand[0]) ? "range by hand: two numbers, the lower one first" : "");
  if ($("symmetric").checked && kind !== "hand") {
    high = Math.max(Math.abs(low), Math.abs(high));
    low = -high;
  }
  const steps = Number($("steps").value);
  return steps && kind !== "hand" ? roundSteps(low, high, steps) : { low, high };
}

function paint() {
  const plane = told.plane;
  const field = fieldNow();
  if (!plane || !field || plane.variable !== field.name) return;
  const { low, high } = range();
  if ($("range").value !== "hand") [$("low").value, $("high").value] = [text(low), text(high)];
  const colours = { palette: $("palette").value, reverse: $("reverse").checked, steps: Number($("steps").value), low, high };
  colours.hideBelow = $("range").value === "usual";
  map.coast = $("coast").checked && cutOf(field) === "map" ? coastFor(field) : [];
  map.points = chosen.points;
  map.paint(plane, colours);
  drawColourBar($("colourbar"), { ...colours, units: field.units, below: plane.low < low && !colours.hideBelow, above: plane.high > high });
  $("title").textContent = field.title ? `${field.name}: ${quiet(field.title)}` : field.name;
  $("title").title = `${field.title} (${field.dims.join(", ")})`;
  $("when").textContent = plane.frame.label;
  $("map").dataset.painted = `${plane.variable} ${plane.frame.number}`;
  showFrame();
}

/** Staggered grids have one row or column more, half a cell aside. */
function coastFor(field) {
  const grid = told.info?.positions;
  if (!grid || !told.coast) return [];
  const [dy, dx] = [field.shape[0] - grid[0], field.shape[1] - grid[1]];
  if (dy === 0 && dx === 0) return told.coast;
  if (![0, 1].includes(dy) || ![0, 1].includes(dx)) return [];
  return told.coast.map((line) => line.map((v, i) => v + (i % 2 ? dy : dx) / 2));
}

function showAbout() {
  const p = told.plane;
  const pixel = Math.max(...p.factors) > 1 ? `a pixel is the ${p.pool === "nearest" ? "middle" : p.pool} of ${p.factors[1]}×${p.factors[0]} cells · ` : "";
  const missing = p.missing ? `${p.missing} cells missing · ` : "";
  $("about").textContent = `min ${text(p.low)} · mean ${text(p.mean)} · max ${text(p.high)} · ${missing}${pixel}${bytes(p.bytes)} in ${seconds(p.pixels_s)}`;
}

// ---- the value under the mouse ----

let mouse = null;
const askValue = oneAtATime(async () => {
  const field = fieldNow();
  if (!mouse || !field || !told.plane) return;
  const [x, y] = mouse;
  const [rows, columns] = shapeOf(field);
  if (x >= columns || y >= rows) return void ($("mouse").textContent = "");
  try {
    const found = await api.value(chosen.stream, { ...planeOf(field), frame: told.plane.frame.number, x, y });
    const place = found.lat === null ? "" : ` · ${Math.abs(found.lat).toFixed(2)}° ${found.lat < 0 ? "S" : "N"} ${Math.abs(found.lon).toFixed(2)}° ${found.lon < 0 ? "W" : "E"}`;
    if (mouse) $("mouse").textContent = `${pointWords(field, x, y)}${place} · ${found.value === null ? "missing" : `${text(found.value, 6)} ${field.units}`}`;
  } catch (error) {
    $("mouse").textContent = error.message;
  }
});
/** A cell of the plane in words: of a section its level comes first. */
function pointWords(field, x, y) {
  const cut = cutOf(field);
  if (cut === "map") return `x ${x}, y ${y}`;
  const up = upOf(field);
  const level = up.texts?.[y] ?? `level ${y}`;
  return cut === "row" ? `${level}, x ${x}, y ${whereOf(field)}` : `${level}, x ${whereOf(field)}, y ${x}`;
}
function underMouse(cell) {
  if (cell && mouse && cell[0] === mouse[0] && cell[1] === mouse[1]) return;
  mouse = cell;
  if (cell) askValue();
}

// ---- time series ----

function addPoint(x, y) {
  if (chosen.points.some((p) => p.x === x && p.y === y)) return;
  if (chosen.points.length === POINTS_MAX) chosen.points.shift();
  chosen.points.push({ x, y, values: [] });
  showPoints();
  map.draw();
  askSeries();
}

const askSeries = oneAtATime(async () => {
  const field = fieldNow();
  if (!field || !chosen.points.length) return showPoints();
  await attempt("series", async () => {
    const [rows, columns] = shapeOf(field);
    for (const point of [...chosen.points]) {
      const [y, x] = [Math.min(point.y, rows - 1), Math.min(point.x, columns - 1)];
      if (!profileShown(field)) point.values = (await api.series(chosen.stream, { ...planeOf(field), x, y })).values;
      else point.profile = (await api.profile(chosen.stream, profileOf(field, y, x))).values;
    }
  });
  showPoints();
});

const profileShown = (field) => $("graph").value === "profile" && upOf(field) !== undefined;
/** Of the column below a point of a map; of one of a section, of the column that it lies in. */
function profileOf(field, y, x) {
  const at = levelsOf(field).filter((_, i) => field.levels[i] !== upOf(field));
  const [j, i] = { map: [y, x], row: [whereOf(field), x], column: [x, whereOf(field)] }[cutOf(field)];
  return { variable: field.name, at: at.join(), frame: chosen.frame, y: j, x: i };
}

function showPoints() {
  const field = fieldNow();
  map.points = chosen.points;
  const profile = field !== undefined && profileShown(field);
  $("graph").hidden = !field || upOf(field) === undefined;
  $("graph-title").textContent = profile ? "Profile" : "Time series";
  $("points").replaceChildren(...chosen.points.map((point, k) => {
    const item = document.createElement("li");
    const dot = document.createElement("i");
    dot.style.background = POINT_COLOURS[k];
    const last = point.values.at(-1);
    const remove = document.createElement("button");
    remove.textContent = "×";
    remove.title = "Remove this point";
    remove.addEventListener("click", () => {
      chosen.points.splice(chosen.points.indexOf(point), 1);
      showPoints();
      map.draw();
    });
    item.append(dot, profile ? pointWords(field, point.x, point.y) : `${pointWords(field, point.x, point.y)}: ${text(last?.[3], 5)}`, remove);
    return item;
  }));
  $("series-hint").hidden = chosen.points.length > 0;
  $("series").style.display = chosen.points.length ? "" : "none";
  $("clear").disabled = !chosen.points.length;
  $("csv").disabled = profile || !chosen.points.length;
  if (profile && chosen.points.length) {
    $("series-of").textContent = `${field.name}, ${upOf(field).size} levels, ${told.plane?.frame.label ?? ""}`;
    return drawProfile($("series"), chosen.points, field.units, upOf(field));
  }
  $("series-of").textContent = field && chosen.points.length ? `${field.name}${levelWords(field)}, ${counted(Math.max(...chosen.points.map((p) => p.values.length)), "frame")}` : "";
  drawSeries($("series"), chosen.points, field?.units);
}

const levelWords = (field) => otherLevels(field).filter((level) => level.size > 1).map((level) => ` ${levelText(level, Math.min(level.size - 1, chosen.levels[level.name] ?? 0))}`).join("");
const levelText = (level, at) => level.texts?.[at] ?? `level ${at}`;

function saveCsv() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv(chosen.points, chosen.field, fieldNow().units)], { type: "text/csv" }));
  link.download = `${chosen.field}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

// ---- the table ----

const table = new Table($("rows"), { choose: (name) => (show("map"), chooseField(name)) });
let tableRunning = false;
async function fillTable() {
  if (chosen.shown !== "table" || !told.info || tableRunning) return;
  tableRunning = true;
  let frame;
  try {
    // One round is not cut short by a frame that comes: it ends, and the next one shows the newest.
    do {
      const newest = told.state.streams.find((s) => s.name === chosen.stream).latest;
      frame = chosen.frame === "latest" ? newest.number : chosen.frame;
      $("table-when").textContent = `${chosen.frame === "latest" ? newest.label : `frame ${frame}`}`;
      // A frame of a run may be gone before its last row: each row has the newest one.
      await table.fill(chosen.stream, told.info.fields, chosen.frame, $("whole").checked, levelsOf);
    } while (chosen.shown === "table" && chosen.frame === "latest" && told.state.streams.find((s) => s.name === chosen.stream).latest.number !== frame);
  } finally {
    tableRunning = false;
  }
}

function show(what) {
  chosen.shown = what;
  for (const name of ["map", "table"]) $(`tab-${name}`).setAttribute("aria-selected", String(name === what));
  $("map-panel").hidden = $("series-panel").hidden = what !== "map";
  $("table-panel").hidden = what !== "table";
  document.querySelector("main").classList.toggle("table", what === "table");
  if (what === "table") fillTable();
  else table.stop(), askPlane();
}

// ---- fields, levels, streams ----

function chooseField(name) {
  if (!told.info.fields.some((f) => f.name === name)) return;
  chosen.field = name;
  usualColours.byHand = false;
  if (["hand", "usual"].includes($("range").value)) $("range").value = "growing";
  $("range").querySelector('[value="usual"]').hidden = !fieldNow().usual;
  if (chosen.cut !== "map" && !(chosen.cut in fieldNow().cuts)) chosen.points = [];
  chosen.points.forEach((p) => (p.values = []));
  listFields();
  showLevels();
  askPlane();
  askSeries();
}

/** WRF shouts. */
const quiet = (title) => (title === title.toUpperCase() ? title.toLowerCase() : title);

function shownFields() {
  const words = $("filter").value.trim().toLowerCase();
  return told.info.fields.filter((f) => `${f.name} ${f.title}`.toLowerCase().includes(words));
}

function listFields() {
  $("fields").replaceChildren(...shownFields().map((field) => {
    const item = document.createElement("li");
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", String(field.name === chosen.field));
    item.title = `${field.title} (${[...field.levels.map((l) => l.name), ...field.dims].join(", ")})`;
    const [units, name, what] = [document.createElement("span"), document.createElement("b"), document.createElement("span")];
    [units.className, what.className] = ["units", "what"];
    [units.textContent, name.textContent, what.textContent] = [field.units, field.name, quiet(field.title) || field.dims.join(" × ")];
    item.append(units, name, what);
    item.addEventListener("click", () => chooseField(field.name));
    return item;
  }));
  $("fields").querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
}

function showLevels() {
  const field = fieldNow();
  $("cut").value = cutOf(field);
  $("coast-label").hidden = !told.coast?.length || cutOf(field) !== "map";
  $("cut-label").hidden = Object.keys(field.cuts).length < 2;
  $("levels").replaceChildren(...otherLevels(field).filter((l) => l.size > 1).map((level) => {
    const part = document.createElement("span");
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: level.size - 1, value: chosen.levels[level.name] ?? 0, title: "Level ( [ and ] )" });
    slider.setAttribute("aria-label", level.name);
    const label = document.createElement("output");
    const say = () => (label.textContent = level.texts ? level.texts[slider.value] : `${slider.value} of 0–${level.size - 1}`);
    slider.addEventListener("input", () => {
      chosen.levels[level.name] = Number(slider.value);
      say();
      askPlane();
      askSeries();
    });
    say();
    part.append(`${level.name} `, slider, " ", label);
    return part;
  }), ...(cutOf(field) === "map" ? [] : [placeSlider(field)]));
}

/** Which row, or column, a section is cut along. */
function placeSlider(field) {
  const part = document.createElement("span");
  const along = cutOf(field) === "row" ? 0 : 1;
  const size = field.shape[along];
  const slider = Object.assign(document.createElement("input"), { type: "range", id: "where", min: 0, max: size - 1, value: whereOf(field), title: "Place of the section ( [ and ] )" });
  slider.setAttribute("aria-label", along ? "column" : "row");
  const label = document.createElement("output");
  label.textContent = `${along ? "x" : "y"} ${slider.value}`;
  slider.addEventListener("input", () => {
    chosen.where[cutOf(field)] = Number(slider.value);
    label.textContent = `${along ? "x" : "y"} ${slider.value}`;
    askPlane();
    askSeries();
  });
  part.append(`${field.dims[along]} `, slider, " ", label);
  return part;
}

function chooseCut(cut) {
  const field = fieldNow();
  if (!field || !(cut in field.cuts)) return;
  // The section goes through the point that was clicked last.
  const last = chosen.points.at(-1);
  if (cutOf(field) === "map" && last) chosen.where = { row: last.y, column: last.x };
  chosen.cut = cut;
  clearPoints();
  showLevels();
  askPlane();
}

async function chooseStream(name) {
  chosen.stream = name;
  chosen.frame = "latest";
  chosen.points = [];
  await attempt("stream", async () => {
    told.info = await api.describe(name);
    told.coast = told.info.positions ? await api.coast(name) : null;
    if (!told.info.fields.length) throw new api.Refused(`${name} has no field of two dimensions to draw`);
    const usual = ["T2", "QVAPOR", "T", "tos", "QV"].find((n) => told.info.fields.some((f) => f.name === n));
    const still = told.info.fields.some((f) => f.name === chosen.field);
    chooseField(still ? chosen.field : (usual ?? told.info.fields.find((f) => !/lat|lon/i.test(f.name))?.name ?? told.info.fields[0].name));
  });
}

// ---- frames: the newest, or one of those kept ----

const streamNow = () => told.state?.streams.find((s) => s.name === chosen.stream);
const numberNow = () => (chosen.frame === "latest" ? (streamNow()?.latest.number ?? 0) : chosen.frame);

function goTo(number) {
  const last = streamNow()?.latest.number ?? 0;
  chosen.frame = number === "latest" ? "latest" : Math.max(0, Math.min(last, number));
  showFrame();
  showStatus();
  if (chosen.shown === "table") fillTable();
  askPlane();
  if (fieldNow() && profileShown(fieldNow())) askSeries();
}

function showFrame() {
  const last = streamNow()?.latest.number ?? 0;
  Object.assign($("slider"), { max: last, value: numberNow() });
  $("frame").textContent = `frame ${numberNow() + 1} of ${last + 1}`;
  $("pause").textContent = chosen.frame === "latest" ? "Pause" : "Go on";
}

const togglePause = () => (stopPlaying(), goTo(chosen.frame === "latest" ? numberNow() : "latest"));

let playing = null;
function stopPlaying() {
  clearInterval(playing);
  playing = null;
  $("play").textContent = "Play";
}
function togglePlay() {
  if (playing) return stopPlaying();
  $("play").textContent = "Stop";
  if (chosen.frame === "latest") goTo(0);
  playing = setInterval(() => {
    if (told.plane && told.plane.frame.number !== chosen.frame && !messages.map) return; // the one before is not drawn yet
    goTo(chosen.frame >= (streamNow()?.latest.number ?? 0) ? 0 : chosen.frame + 1);
  }, PLAY_MS);
}

// ---- what the server tells ----

function showStatus() {
  const pill = $("status");
  let [kind, words] = [told.state?.state ?? "waiting", ""];
  if (!told.connected) kind = "reconnecting";
  else if (kind === "live" && chosen.frame !== "latest") kind = "paused";
  words = { live: "live", ended: "all frames are there", waiting: "waiting for frames", paused: "paused", reconnecting: "reconnecting", failed: "failed" }[kind];
  if (kind === "ended" && told.state.live) words = "run has ended";
  pill.className = `pill ${kind}`;
  pill.textContent = words;
}

function showProgress() {
  const stream = streamNow();
  if (!stream) return;
  const parts = [counted(stream.seen, "frame")];
  if (told.state.state === "live") {
    if (stream.per_minute) parts.push(`${text(stream.per_minute, 3)} per min`);
    parts.push(`last ${seconds(Math.round(stream.since_s))} ago`);
  }
  const run = told.state.run;
  if (run) {
    parts.push(`written ${run.frames_visible} of ${run.frames_synced}`, `stall ${seconds(run.stall_median_s)} (max ${seconds(run.stall_max_s)})`, `backlog ${bytes(run.backlog_bytes)} of ${bytes(run.bytes_max)}`);
    if (run.frames_dropped) parts.push(`${run.frames_dropped} left out`);
  }
  $("progress").textContent = parts.join(" · ");
  message("run", run?.errors?.length ? `the run: ${run.errors[0]}` : "");
}

let lastSeen = null;
async function tellState(state) {
  told.connected = true;
  told.state = state;
  message("server", state.why ? `${state.state === "failed" ? "no more frames" : "the run"}: ${state.why}` : "");
  const names = state.streams.map((s) => s.name);
  if ($("stream").dataset.names !== names.join("|")) {
    $("stream").dataset.names = names.join("|");
    $("stream").replaceChildren(...names.map((name) => new Option(name, name)));
    if (chosen.stream) $("stream").value = chosen.stream;
  }
  if (!chosen.stream && names.length) await chooseStream(names[0]);
  const stream = streamNow();
  showStatus();
  showProgress();
  const seen = stream && `${stream.name} ${stream.seen}`;
  if (!stream || seen === lastSeen) return;
  lastSeen = seen;
  showFrame();
  if (told.info && stream.fields !== told.info.fields.length) {
    await attempt("stream", async () => (told.info = await api.describe(stream.name)));
    listFields();
  }
  if (chosen.frame === "latest") askPlane();
  askSeries();
  fillTable();
}

api.events({
  state: (state) => attempt("page", () => tellState(state)),
  lost: () => {
    told.connected = false;
    message("server", "the server does not answer: it may have been ended. This page connects again by itself.");
    showStatus();
  },
});

// ---- choices: buttons, keys, what is remembered ----

const remembered = (key, usual) => localStorage.getItem(`advectio.${key}`) ?? usual;
const remember = (key, value) => localStorage.setItem(`advectio.${key}`, value);

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  paint();
  map.draw();
}
const toggleTheme = () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  remember("theme", name);
  theme(name);
};

function nextField(step) {
  const names = shownFields().map((f) => f.name);
  chooseField(names[(names.indexOf(chosen.field) + step + names.length) % names.length]);
}
/** Up, whichever way the file counts its levels; of a section the next row or column. */
function nextLevel(step) {
  const field = fieldNow();
  if (!field) return;
  if (cutOf(field) !== "map") {
    const size = field.shape[cutOf(field) === "row" ? 0 : 1];
    chosen.where[cutOf(field)] = Math.max(0, Math.min(size - 1, whereOf(field) + step));
  } else {
    const level = field.levels.find((l) => l.size > 1);
    if (!level) return;
    chosen.levels[level.name] = Math.max(0, Math.min(level.size - 1, (chosen.levels[level.name] ?? 0) + (level.down ? -step : step)));
  }
  showLevels();
  askPlane();
  askSeries();
}
function nextCut() {
  const cuts = Object.keys(fieldNow().cuts);
  chooseCut(cuts[(cuts.indexOf(cutOf(fieldNow())) + 1) % cuts.length]);
}
function nextPalette() {
  $("palette").value = NAMES[(NAMES.indexOf($("palette").value) + 1) % NAMES.length];
  paletteChosen();
}
function paletteChosen() {
  usualColours.byHand = true;
  if (!DIVERGING.includes($("palette").value)) remember("palette", $("palette").value);
  paint();
}
const toggle = (id) => (($(id).checked = !$(id).checked), $(id).dispatchEvent(new Event("change")));
const step = (by) => (stopPlaying(), goTo(numberNow() + by));
const clearPoints = () => ((chosen.points = []), showPoints(), map.draw());

const KEYS = [
  ["Space", "pause, go on", [" "], togglePause],
  ["← →", "frame before, frame after", ["ArrowLeft", "ArrowRight"], (key) => step(key === "ArrowLeft" ? -1 : 1)],
  ["Home, End", "first frame, newest frame", ["Home", "End"], (key) => (stopPlaying(), goTo(key === "Home" ? 0 : "latest"))],
  ["P", "play the frames that are kept", ["p"], togglePlay],
  ["V", "map, section along a row, along a column", ["v"], () => nextCut()],
  ["[ ]", "level below, level above; section before, after", ["[", "]"], (key) => nextLevel(key === "[" ? -1 : 1)],
  ["↑ ↓", "field before, field after", ["ArrowUp", "ArrowDown"], (key) => nextField(key === "ArrowUp" ? -1 : 1)],
  ["/", "find a field", ["/"], () => $("filter").focus()],
  ["C", "next palette", ["c"], nextPalette],
  ["R", "reverse the palette", ["r"], () => toggle("reverse")],
  ["S", "symmetric range", ["s"], () => toggle("symmetric")],
  ["+ − 0", "zoom in, zoom out, all", ["+", "-", "0"], (key) => (key === "0" ? (map.fit(), askPlane(), map.draw()) : map.zoom(key === "+" ? 1.5 : 1 / 1.5))],
  ["X", "remove all points", ["x"], clearPoints],
  ["T", "map or table", ["t"], () => show(chosen.shown === "map" ? "table" : "map")],
  ["D", "dark or light", ["d"], toggleTheme],
  ["?", "this page", ["?"], () => $("help").showModal()],
];

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || $("help").open) return;
  const target = event.target;
  if (event.key === "Escape") return target.blur();
  if (target.matches("input[type=search], input[type=text], select")) return;
  if (target.matches("input[type=range]") && event.key.startsWith("Arrow")) return;
  if (target.matches("button, input[type=checkbox]") && event.key === " ") return;
  const found = KEYS.find(([, , keys]) => keys.includes(event.key.length === 1 ? event.key.toLowerCase() : event.key));
  if (!found || !told.info) return;
  event.preventDefault();
  found[3](event.key);
});

$("keys").replaceChildren(...KEYS.flatMap(([keys, what]) => [
  Object.assign(document.createElement("dt"), { textContent: keys }),
  Object.assign(document.createElement("dd"), { textContent: what }),
]));
$("palette").replaceChildren(...NAMES.map((name) => new Option(forAllEyes(name) ? name : `${name} (not for the colour-blind)`, name)));
$("palette").value = remembered("palette", "viridis");

const on = (id, event, work) => $(id).addEventListener(event, work);
on("stream", "change", () => chooseStream($("stream").value));
on("cut", "change", () => chooseCut($("cut").value));
on("graph", "change", () => (showPoints(), askSeries()));
on("filter", "input", listFields);
on("filter", "keydown", (event) => event.key === "Enter" && shownFields().length && (chooseField(shownFields()[0].name), event.target.blur()));
on("palette", "change", paletteChosen);
for (const id of ["reverse", "steps", "coast"]) on(id, "change", paint);
on("symmetric", "change", () => {
  usualColours.byHand = true;
  if ($("range").value === "hand") $("range").value = "growing";
  paint();
});
on("range", "change", paint);
for (const id of ["low", "high"]) on(id, "change", () => (($("range").value = "hand"), paint()));
for (const id of ["pool", "slow"]) on(id, "change", () => askPlane());
on("first", "click", () => (stopPlaying(), goTo(0)));
on("previous", "click", () => step(-1));
on("next", "click", () => step(1));
on("pause", "click", togglePause);
on("play", "click", togglePlay);
on("slider", "input", () => (stopPlaying(), goTo(Number($("slider").value))));
on("csv", "click", saveCsv);
on("clear", "click", clearPoints);
on("whole", "change", fillTable);
on("tab-map", "click", () => show("map"));
on("tab-table", "click", () => show("table"));
on("theme", "click", toggleTheme);
on("help-open", "click", () => $("help").showModal());
window.addEventListener("resize", () => (paint(), showPoints()));

showPoints();
theme(remembered("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
