// The list of runs: sorted by any column, searched, and chosen for a comparison.

import { el, text, figure, short, count, duration, rate, shown, stepOf } from './dom.js';

const number = (v) => (v === null || v === undefined ? NaN : v);
const differs = (d) => (d.differs || []).map((x) => `${x.key.split('.').pop()} ${shown(x.value)}`).join(', ');
const states = { running: 'running', paused: 'paused', stalled: 'stalled', ended: 'finished', stopped: 'stopped', failed: 'failed', quiet: 'no updates', starting: 'starting' };
export const stateWords = (d) => states[d.state] || d.state;
export const pill = (d) => el('span', { class: `pill ${d.state}` }, stateWords(d));

function ago(t) {
  if (!t) return '–';
  const s = Math.max(0, (Date.now() - t) / 1000);
  if (s < 90) return `${Math.round(s)} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  if (s < 129600) return `${Math.round(s / 3600)} h ago`;
  return new Date(t).toLocaleDateString();
}

// Each column has its value, by which it is sorted, and its words. Of numbers marked down, the largest come first.
const columns = [
  { name: 'Run', value: (d) => d.name },
  { name: 'Step', n: true, down: true, value: (d) => d.step, words: stepOf },
  { name: 'Loss', n: true, value: (d) => number(d.loss), words: (d) => figure(d.loss) },
  { name: 'Validation loss', n: true, value: (d) => number(d.val_loss), words: (d) => figure(d.val_loss) },
  { name: 'Best validation', n: true, value: (d) => number(d.best_val_loss), words: (d) => (d.best_step || d.best_val_loss !== null ? `${figure(d.best_val_loss)} at ${count(d.best_step)}` : '–') },
  { name: 'Learning rate', n: true, value: (d) => number(d.peak_lr), words: (d) => rate(d.peak_lr) },
  { name: 'Tokens/s', n: true, down: true, value: (d) => number(d.medians?.tokens_per_s), words: (d) => short(d.medians?.tokens_per_s) },
  { name: 'Time', n: true, down: true, value: (d) => d.seconds, words: (d) => (d.seconds ? duration(d.seconds) : '–') },
  { name: 'Parameters', n: true, down: true, value: (d) => d.parameters || NaN, words: (d) => (d.parameters ? short(d.parameters) : '–') },
  { name: 'Updated', down: true, value: (d) => d.updated_ms, words: (d) => ago(d.updated_ms) },
  { name: 'What differs', wide: true, value: differs, words: (d) => differs(d) || '–' },
];
export const compared = 8; // the most runs of a comparison

let sort = null, up = true, wanted = ''; // they stay while the page is open

export function listView() {
  const rows = new Map(), chosen = new Set();
  let runs = [];
  const search = el('input', { type: 'search', id: 'search', value: wanted, placeholder: 'Name, state, value', autocomplete: 'off', oninput: () => { wanted = search.value; paint(true); } });
  const order = el('select', { id: 'order', onchange: () => by(columns[order.selectedIndex - 1] || null) }, el('option', {}, 'Newest'), columns.map((c) => el('option', { selected: c === sort }, c.name)));
  const compare = el('button', { type: 'button', class: 'main', onclick: () => { const [first, ...rest] = chosen; location.hash = `#/run/${first}/curves?with=${rest.join(',')}`; } });
  const found = el('span', { class: 'about', role: 'status' });
  const heads = columns.map((c) => el('button', { type: 'button', class: 'sort', onclick: () => by(c) }, c.name));
  const body = el('tbody');
  const table = el('table', { class: 'runs' }, el('caption', { class: 'hidden' }, 'Runs'),
    el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, el('span', { class: 'hidden' }, 'Compare')), columns.map((c, i) => el('th', { scope: 'col', class: c.n ? 'n' : '' }, heads[i])))), body);
  const bar = el('div', { class: 'bar' }, el('label', { for: 'search' }, 'Search', search), el('label', { for: 'order', class: 'narrow' }, 'Sort by', order), compare, found);
  const element = el('div', {}, bar, el('section', { class: 'card' }, el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Runs' }, table)));

  function by(c) {
    if (c && sort === c) up = !up; else { sort = c; up = !c?.down; }
    order.selectedIndex = sort ? columns.indexOf(sort) + 1 : 0;
    paint(true);
  }

  function compareTo(a, b) {
    if (!sort) return (b.live - a.live) || b.updated_ms - a.updated_ms;
    const x = sort.value(a), y = sort.value(b);
    if (typeof x === 'string') return (up ? 1 : -1) * x.localeCompare(y, undefined, { numeric: true });
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // unknown values come last
    return up ? x - y : y - x;
  }

  function row(d) {
    const box = el('input', { type: 'checkbox', 'aria-label': `Compare ${d.name}`, onchange: () => {
      if (box.checked && chosen.size >= compared) box.checked = false;
      if (box.checked) chosen.add(d.id); else chosen.delete(d.id);
      tell();
    } });
    const state = el('span', {}), cells = columns.slice(1).map((c) => el('td', { class: `${c.n ? 'n' : ''} ${c.wide ? 'wide' : ''}`, 'data-label': c.name }));
    const tr = el('tr', {}, el('td', { class: 'pick' }, box), el('th', { scope: 'row' }, el('a', { href: `#/run/${d.id}` }, d.name), ' ', state), cells);
    return { tr, state, cells, key: '' };
  }

  function tell() {
    text(compare, chosen.size < 2 ? 'Compare' : `Compare ${chosen.size} runs`);
    compare.disabled = chosen.size < 2;
    compare.title = chosen.size < 2 ? 'Choose two runs or more' : '';
  }

  function paint(moved) {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const all = runs.filter((d) => { const t = [d.name, d.text, stateWords(d), d.model, d.schedule, differs(d)].join(' ').toLowerCase(); return words.every((w) => t.includes(w)); }).sort(compareTo);
    for (const d of all) {
      if (!rows.has(d.id)) rows.set(d.id, row(d));
      const r = rows.get(d.id);
      if (r.key !== d.state) { r.key = d.state; r.state.replaceChildren(pill(d)); }
      columns.slice(1).forEach((c, i) => { const w = c.words(d); text(r.cells[i], w); r.cells[i].classList.toggle('none', w === '–'); });
    }
    const now = all.map((d) => rows.get(d.id).tr);
    if (moved || !body.contains(document.activeElement) || now.length !== body.children.length) {
      if (now.some((tr, i) => body.children[i] !== tr) || now.length !== body.children.length) body.replaceChildren(...now);
    }
    columns.forEach((c, i) => { const th = heads[i].parentElement; if (sort === c) th.setAttribute('aria-sort', up ? 'ascending' : 'descending'); else th.removeAttribute('aria-sort'); });
    text(found, words.length ? `${all.length} of ${runs.length}` : '');
    tell();
  }

  return { element, show(all) { runs = all; paint(false); } };
}
