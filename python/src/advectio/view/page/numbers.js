// Numbers as people read them.

/** Four significant digits; powers of ten where there would be many zeros. */
export function text(v, digits = 4) {
  if (v === null || v === undefined || Number.isNaN(v)) return "–";
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e6 || size < 1e-3) return v.toExponential(digits - 2).replace("-", "−").replace("e+", "e").replace("e-", "e−");
  return String(Number(v.toPrecision(Math.max(digits, Math.ceil(Math.log10(size)))))).replace("-", "−");
}

export const counted = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

/** About `count` round numbers from low to high. */
export function ticks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

/** The least range of so many steps of a round size that holds low and high. */
export function roundSteps(low, high, steps) {
  if (!(high > low)) return { low, high };
  const power = 10 ** Math.floor(Math.log10((high - low) / steps));
  for (const factor of [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 20]) {
    const step = factor * power;
    const from = low === -high ? (-steps / 2) * step : Math.floor(low / step + 1e-9) * step;
    if (from + steps * step >= high - step * 1e-9) return { low: from, high: from + steps * step };
  }
  return { low, high };
}

/** Texts of ticks, all with as many digits as tell them apart. */
export function tickTexts(values) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : Math.abs(values[0]) || 1;
  const size = Math.max(...values.map(Math.abs), step);
  if (size >= 1e6 || size < 1e-3) {
    const digits = Math.max(0, Math.min(6, Math.floor(Math.log10(size)) - Math.floor(Math.log10(step) + 1e-9) + 1));
    return values.map((v) => (Math.abs(v) < step / 1e6 ? "0" : v.toExponential(digits).replace(/\.?0+e/, "e")).replace("e+", "e").replaceAll("-", "−"));
  }
  let digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step) + 1e-9)));
  while (digits < 9 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 * step * 10 ** digits) digits++;
  return values.map((v) => v.toFixed(digits).replace("-", "−").replace(/^−(0(\.0*)?)$/, "$1"));
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return `${unit === "B" ? n : n.toPrecision(3)} ${unit}`;
    n /= 1000;
  }
  return `${n.toPrecision(3)} TB`;
}

export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 1) return `${text(s * 1000, 3)} ms`;
  if (s < 120) return `${text(s, 3)} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${text(s / 3600, 3)} h`;
}
