// Min, mean and max of each field: the map in numbers. Fields are asked for one after the other, so that reading them never
// takes more than a part of the machine from the model.

import * as api from "./api.js";
import { text } from "./numbers.js";

export class Table {
  constructor(body, { choose, failed }) {
    this.body = body;
    this.choose = choose;
    this.failed = failed;
    this.round = 0;
  }

  stop() {
    this.round++;
  }

  /** Fill all rows once for a frame; a later call takes over. */
  async fill(stream, fields, frame, whole, levelsOf) {
    const round = ++this.round;
    this.rows(fields);
    for (const field of fields) {
      if (round !== this.round) return;
      const row = this.body.querySelector(`[data-name="${CSS.escape(field.name)}"]`);
      try {
        const found = await api.stats(stream, { variable: field.name, at: levelsOf(field).join(), frame, whole: whole ? 1 : 0 });
        if (round !== this.round) return;
        const missing = found.missing ? `${found.missing} of ${found.cells}` : "";
        [text(found.min, 6), text(found.mean, 6), text(found.max, 6), missing].forEach((t, i) => (row.children[2 + i].textContent = t));
        row.title = "";
      } catch (error) {
        if (!(error instanceof api.Refused)) throw error;
        row.title = error.message;
        for (let i = 2; i < 6; i++) row.children[i].textContent = "–";
      }
    }
  }

  rows(fields) {
    if (this.body.dataset.names === fields.map((f) => f.name).join()) return;
    this.body.dataset.names = fields.map((f) => f.name).join();
    this.body.replaceChildren(...fields.map((field) => {
      const row = document.createElement("tr");
      row.dataset.name = field.name;
      const levels = field.levels.filter((l) => l.size > 1).map((l) => l.size).join("×");
      for (const [content, kind] of [[field.name, "name"], [field.units, ""], ["…", "number"], ["…", "number"], ["…", "number"], ["", "number"], [levels, "number"], [field.title, "title"]]) {
        const cell = document.createElement("td");
        cell.className = kind;
        cell.textContent = content;
        row.append(cell);
      }
      row.addEventListener("click", () => this.choose(field.name));
      return row;
    }));
  }
}
