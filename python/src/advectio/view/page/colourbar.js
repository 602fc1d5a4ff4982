// The colour bar: the palette upright, with numbers, units, and arrows where values lie beyond its ends.

import { colours } from "./palettes.js";
import { ticks, tickTexts } from "./numbers.js";

export function drawColourBar(canvas, { palette, reverse, steps, low, high, units, below, above }) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !height) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(canvas);
  const [top, bottom, bar] = [34, height - 22, 18];
  const shades = colours(palette, Math.max(2, Math.round(bottom - top)), { reverse, steps });
  shades.forEach(([r, g, b], i) => {
    context.fillStyle = `rgb(${r},${g},${b})`;
    context.fillRect(2, bottom - i - 1, bar, 1.5);
  });
  const arrow = (colour, base, tip) => {
    context.fillStyle = `rgb(${colour})`;
    context.beginPath();
    context.moveTo(2, base);
    context.lineTo(2 + bar, base);
    context.lineTo(2 + bar / 2, tip);
    context.fill();
  };
  if (above) arrow(shades.at(-1), top, top - 11);
  if (below) arrow(shades[0], bottom, bottom + 11);
  context.strokeStyle = context.fillStyle = style.color;
  context.lineWidth = 1;
  context.strokeRect(2.5, top + 0.5, bar - 1, bottom - top - 1);
  context.font = `12px ${style.fontFamily}`;
  context.textBaseline = "middle";
  const marks = steps > 1 && high > low
    ? Array.from({ length: steps + 1 }, (_, i) => low + ((high - low) * i) / steps)
    : ticks(low, high, Math.max(2, Math.floor((bottom - top) / 48)));
  tickTexts(marks).forEach((label, i) => {
    const y = high > low ? bottom - ((marks[i] - low) / (high - low)) * (bottom - top) : (top + bottom) / 2;
    context.fillRect(2 + bar, Math.round(y), 5, 1);
    context.fillText(label, bar + 10, y);
  });
  context.textBaseline = "alphabetic";
  context.fillText(units || "no units", 2, 14);
}
