// Several at once: what is chosen, everything that fits, and one question before each is changed by itself.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { look } from "./main.js";
import { attempt, button, confirm, quoted } from "./widgets.js";

const MOST = 1000;

export class Bulk {
  // verbs: { pause: { path: (id) => [...], command: "timewright schedule pause", text: "what it means", fits: (row) => true, danger } }
  constructor({ noun, verbs, path, field }) {
    Object.assign(this, { noun, verbs, path, field, rows: new Map() });
  }

  get handles() {
    return { selected: this.rows, choose: (key) => { if (!this.rows.delete(key)) this.rows.set(key, null); look(); }, chooseAll: (keys, on) => { for (const key of keys) on ? this.rows.set(key, null) : this.rows.delete(key); look(); } };
  }

  // Rows that are seen tell in which state they are, whenever they were chosen.
  see(rows) { for (const row of rows) if (this.rows.has(row.id)) this.rows.set(row.id, row); }

  async takeAll(filters) {
    const answer = await attempt(() => get(this.path, { ...filters, cursor: "", limit: MOST }));
    if (!answer) return;
    for (const row of answer[this.field]) this.rows.set(row.id, row);
    look();
  }

  bar(rows, { filters, more }) {
    this.see(rows);
    if (!this.rows.size) return null;
    const whole = rows.length && rows.every((row) => this.rows.has(row.id)) && more;
    return h("div", { class: "bulk", role: "toolbar", "aria-label": "for the chosen" }, h("strong", null, `${this.rows.size} chosen`),
      whole && this.rows.size < MOST ? button("all that fit, up to a thousand", () => this.takeAll(filters), { kind: "quiet" }) : null,
      Object.keys(this.verbs).map((verb) => button(this.verbs[verb].said || verb, () => this.ask(verb))), button("none", () => { this.rows.clear(); look(); }, { kind: "quiet" }));
  }

  async ask(verb) {
    const { fits = () => true, command, danger, said = verb, path, text = "" } = this.verbs[verb];
    const rows = [...this.rows].filter(([, row]) => row);
    const fit = rows.filter(([, row]) => fits(row));
    const left = this.rows.size - fit.length;
    const names = fit.map(([id, row]) => quoted(row.name || id));
    const shown = names.length > 1 ? `for it in ${names.slice(0, 20).join(" ")}${names.length > 20 ? " …" : ""}; do ${command} "$it"; done` : `${command} ${names[0] || this.noun.toUpperCase()}`;
    const answer = await confirm({ title: `${said} ${fit.length} ${this.noun}s?`, act: said, reason: true, danger, text: `${text} ${left ? `${left} of the chosen cannot be changed so and stay as they are.` : "Each is changed by itself; one that refuses stops the rest."}`.trim(), command: () => shown });
    if (!answer) return;
    const body = answer.reason ? { reason: answer.reason } : {};
    let done = 0;
    for (const [id] of fit) { if ((await attempt(() => post(path(id), body))) === null) break; done += 1; }
    this.rows.clear();
    await attempt(look, `${said}: ${done} done`);
  }
}
