// The map: one plane in index space; coastlines, points and what lies under the mouse.
//
// All that comes in and goes out counts cells as the file does. `view` counts them on the screen, to the right and upwards: it
// is the corner (x0, y0) at the lower left, and `scale` in device pixels per cell. Where the file's rows go down (from north to
// south) or its columns to the left, `screen` turns them. Cells of a section are stretched to fill the height.

import { colours } from "./palettes.js";

const ZOOM_MAX = 64; // device pixels per cell
export const POINT_COLOURS = ["#e8590c", "#1c7ed6", "#2b8a3e", "#ae3ec9", "#c2255c", "#087f5b"];

export class MapView {
  /** told: { moved() the view has changed; over(x, y) mouse in cells, or null; clicked(x, y) } */
  constructor(canvas, told) {
    this.canvas = canvas;
    this.told = told;
    this.image = document.createElement("canvas");
    this.cells = null; // [ny, nx] of the whole plane
    this.plane = null;
    this.coast = [];
    this.points = [];
    this.view = { x0: 0, y0: 0, scale: 1 };
    this.whole = true;
    this.turned = { down: false, mirrored: false, stretched: false };
    new ResizeObserver(() => this.resized()).observe(canvas);
    this.listen();
  }

  /** A plane of other size, or another way up: back to the whole. */
  setCells(shape, turned) {
    const same = this.cells && this.cells[0] === shape[0] && this.cells[1] === shape[1];
    if (same && ["down", "mirrored", "stretched"].every((how) => this.turned[how] === turned[how])) return;
    [this.cells, this.turned] = [shape, turned];
    this.plane = null; // of another shape: it would be drawn at the wrong place
    this.fit();
  }

  /** A place in cells of the file as one of the screen; and the other way round. */
  screen(x, y) {
    const [ny, nx] = this.cells;
    return [this.turned.mirrored ? nx - x : x, this.turned.down ? ny - y : y];
  }

  /** How much higher than wide a cell is drawn. */
  get stretch() {
    if (!this.cells || !this.turned.stretched || !this.canvas.width) return 1;
    const [ny, nx] = this.cells;
    return (this.canvas.height / ny) / (this.canvas.width / nx);
  }

  fit() {
    if (!this.cells) return;
    const [ny, nx] = this.cells;
    const { width, height } = this.canvas;
    const stretch = this.stretch;
    const scale = Math.min(width / nx, height / ny / stretch);
    this.view = { scale, x0: (nx - width / scale) / 2, y0: (ny - height / scale / stretch) / 2 };
    this.whole = true;
  }

  resized() {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(this.canvas.clientWidth * ratio);
    const height = Math.round(this.canvas.clientHeight * ratio);
    if (!width || !height || (this.canvas.width === width && this.canvas.height === height)) return;
    this.canvas.width = width;
    this.canvas.height = height;
    if (this.whole) this.fit();
    this.told.moved();
    this.draw();
  }

  /** What to ask the server for: the cells that can be seen, and how many device pixels they take. */
  wanted() {
    const [ny, nx] = this.cells;
    const { x0, y0, scale } = this.view;
    const high = scale * this.stretch;
    const ends = [this.screen(x0, y0), this.screen(x0 + this.canvas.width / scale, y0 + this.canvas.height / high)];
    const from = [0, 1].map((i) => Math.max(0, Math.min([nx, ny][i] - 1, Math.floor(Math.min(ends[0][i], ends[1][i])))));
    const to = [0, 1].map((i) => Math.max(1, Math.min([nx, ny][i], Math.ceil(Math.max(ends[0][i], ends[1][i])))));
    return { box: [...from, ...to].join(), width: Math.max(1, Math.ceil((to[0] - from[0]) * scale)), height: Math.max(1, Math.ceil((to[1] - from[1]) * high)) };
  }

  /** Colour a plane: its quantised values by way of a table of colours. */
  paint(plane, { palette, reverse, steps, low, high, hideBelow }) {
    this.plane = plane;
    const table = new Uint32Array(1 << plane.bits);
    const last = table.length - 1;
    const shades = colours(palette, 1024, { reverse, steps }).map(([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
    const span = high > low ? high - low : 1;
    for (let i = 1; i <= last; i++) {
      const value = plane.low + ((i - 1) * (plane.high - plane.low)) / (last - 1);
      table[i] = hideBelow && value < low ? 0 : shades[Math.max(0, Math.min(1023, Math.round(((value - low) / span) * 1023)))];
    }
    const [ny, nx] = plane.shape;
    if (this.image.width !== nx || this.image.height !== ny) Object.assign(this.image, { width: nx, height: ny });
    const pixels = new ImageData(nx, ny);
    const out = new Uint32Array(pixels.data.buffer);
    const { down, mirrored } = this.turned;
    for (let j = 0; j < ny; j++) {
      const from = (down ? j : ny - 1 - j) * nx;
      for (let i = 0; i < nx; i++) out[j * nx + i] = table[plane.values[from + (mirrored ? nx - 1 - i : i)]];
    }
    this.image.getContext("2d").putImageData(pixels, 0, 0);
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const style = getComputedStyle(this.canvas);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.plane || !this.cells) return;
    const ratio = window.devicePixelRatio || 1;
    const [ny, nx] = this.cells;
    const { scale } = this.view;
    const high = scale * this.stretch;
    const onCanvas = (x, y) => [(x - this.view.x0) * scale, this.canvas.height - (y - this.view.y0) * high];
    const at = (x, y) => onCanvas(...this.screen(x, y));

    const [left, top] = onCanvas(0, ny);
    context.fillStyle = style.getPropertyValue("--missing");
    context.fillRect(left, top, nx * scale, ny * high);

    const { box, factors, shape } = this.plane;
    const [far, near] = [this.screen(box[0] + shape[1] * factors[1], box[1] + shape[0] * factors[0]), this.screen(box[0], box[1])];
    const [x, y] = onCanvas(Math.min(far[0], near[0]), Math.max(far[1], near[1]));
    context.imageSmoothingEnabled = Math.max(scale * factors[1], high * factors[0]) < 1;
    context.save();
    context.beginPath();
    context.rect(left, top, nx * scale, ny * high);
    context.clip(); // the last blocks may reach over the edge
    context.drawImage(this.image, x, y, shape[1] * factors[1] * scale, shape[0] * factors[0] * high);
    if (this.coast.length) {
      context.beginPath();
      for (const line of this.coast) {
        for (let i = 0; i < line.length; i += 2) {
          const [px, py] = at(line[i], line[i + 1]);
          if (i) context.lineTo(px, py);
          else context.moveTo(px, py);
        }
      }
      context.lineJoin = "round";
      context.strokeStyle = "rgba(255,255,255,0.65)";
      context.lineWidth = 2.6 * ratio;
      context.stroke();
      context.strokeStyle = "rgba(0,0,0,0.85)";
      context.lineWidth = 1.1 * ratio;
      context.stroke();
    }
    context.restore();
    context.strokeStyle = style.getPropertyValue("--line");
    context.lineWidth = ratio;
    context.strokeRect(left, top, nx * scale, ny * high);

    this.points.forEach((point, k) => {
      const [px, py] = at(point.x + 0.5, point.y + 0.5);
      context.beginPath();
      context.arc(px, py, 6 * ratio, 0, 7);
      context.fillStyle = POINT_COLOURS[k % POINT_COLOURS.length];
      context.fill();
      context.strokeStyle = "#fff";
      context.lineWidth = 2 * ratio;
      context.stroke();
    });
  }

  /** The cell under a mouse event, or null. */
  cell(event) {
    if (!this.cells) return null;
    const ratio = window.devicePixelRatio || 1;
    const [x, y] = this.screen(
      this.view.x0 + (event.offsetX * ratio) / this.view.scale,
      this.view.y0 + (this.canvas.height - event.offsetY * ratio) / this.view.scale / this.stretch,
    ).map(Math.floor);
    return x >= 0 && y >= 0 && x < this.cells[1] && y < this.cells[0] ? [x, y] : null;
  }

  zoom(by, px = this.canvas.width / 2, py = this.canvas.height / 2) {
    if (!this.cells) return;
    const [ny, nx] = this.cells;
    const least = Math.min(this.canvas.width / nx, this.canvas.height / ny / this.stretch);
    const scale = Math.min(Math.max(ZOOM_MAX, least * 2), this.view.scale * by);
    if (scale <= least * 1.001) this.fit();
    else {
      const up = (this.canvas.height - py) / this.stretch;
      const x = this.view.x0 + px / this.view.scale;
      const y = this.view.y0 + up / this.view.scale;
      this.view = { scale, x0: x - px / scale, y0: y - up / scale };
      this.whole = false;
    }
    this.told.moved();
    this.draw();
  }

  listen() {
    let drag = null;
    const ratio = () => window.devicePixelRatio || 1;
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), event.offsetX * ratio(), event.offsetY * ratio());
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, view: { ...this.view }, far: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const dx = drag ? event.clientX - drag.x : 0;
      const dy = drag ? event.clientY - drag.y : 0;
      if (drag && (drag.far ||= Math.hypot(dx, dy) > 4) && !this.whole) {
        this.view = { ...drag.view, x0: drag.view.x0 - (dx * ratio()) / drag.view.scale, y0: drag.view.y0 + (dy * ratio()) / drag.view.scale / this.stretch };
        this.draw();
      }
      this.told.over(this.cell(event));
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const cell = this.cell(event);
      if (drag && !drag.far && cell) this.told.clicked(...cell);
      else if (drag && drag.far) this.told.moved();
      drag = null;
    });
    this.canvas.addEventListener("pointerleave", () => this.told.over(null));
    this.canvas.addEventListener("dblclick", (event) => event.preventDefault());
  }
}
